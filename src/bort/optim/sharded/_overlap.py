"""Exchanges that are begun when a step has ended, for the next one: they go on during the forward and backward pass.

A decoupled penalty of the next step depends on the weights alone, as the base optimizer has left them. So its exchange can
begin at once. It is used only if no weight has been written to since; all ranks have to write to the same weights, as they do
where each runs the same program. The weights get the same bits as without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bort.optim.sharded._round import Round
from bort.optim.sharded._routes import Begun, begin
from bort.optim.sharded._routing import current_routing


class Overlap:
    """What has been begun for one param group."""

    def __init__(self) -> None:
        self._begun: dict[int, Begun] = {}
        self._written: list[Any] = []

    def begin(self, rounds: Sequence[Round]) -> None:
        """The first rounds, as many as have room in memory (``routing(overlap_bytes=…)``)."""
        room: float = current_routing().overlap_bytes
        for number, round_ in enumerate(rounds):
            room -= round_.exchanged_bytes
            # A weight with two cuts is gathered before its route begins, and that is waited for.
            if room < 0 or round_.route == "whole" or any(weight.gather_first for weight in round_.weights):
                break
            self._begun[number] = begin(round_)
        self._written = _written(rounds) if self._begun else []

    def take(self, rounds: Sequence[Round]) -> dict[int, Begun]:
        """What has been begun, by the number of the round, if it is still true. It is given once."""
        begun, self._begun = self._begun, {}
        if begun and self._written != _written(rounds):
            for wait in begun.values():
                wait()
            return {}
        return begun


def _written(rounds: Sequence[Round]) -> list[Any]:
    """What changes when a weight is written to, or lies somewhere else. (Of a DTensor, and of what it holds: each counts the
    writes that go through itself.)"""
    return [
        (id(weight.weight), weight.weight._version, piece._version, piece.data_ptr())
        for round_ in rounds
        for weight in round_.weights
        for piece in (weight.weight.to_local(),)
    ]
