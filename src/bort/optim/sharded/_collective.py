"""Collectives for many matrices in one call: sums and gathers.

All ranks of a group pass lists of the same matrices, each rank its own pieces of them, in the same order. A function begins
an exchange, of copies of what it is given, and returns what waits for it and gives the results: other work may be done in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bort.optim.sharded._layout import Cut


def add_up(tensors: Sequence[Tensor], groups: Sequence[Any]) -> Callable[[], list[Tensor]]:
    """The sums of each tensor over the ranks of the groups, one group after the other."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    shapes, sizes = [tensor.shape for tensor in tensors], [tensor.numel() for tensor in tensors]
    for group in groups[:-1]:
        dist.all_reduce(flat, group=group)
    work = dist.all_reduce(flat, group=groups[-1], async_op=True)
    assert work is not None  # this rank is part of the group

    def results() -> list[Tensor]:
        work.wait()
        return [part.view(shape) for part, shape in zip(torch.split(flat, sizes), shapes, strict=True)]

    return results


def gather(pieces: Sequence[Tensor], cuts: Sequence[Cut]) -> Callable[[], list[Tensor]]:
    """Whole matrices on every rank, out of pieces along cuts that are all over one group.

    A piece is padded to the size of the largest: all_gather_into_tensor takes the same number of elements from each rank.
    """
    sides = [cut.across(piece.shape) for piece, cut in zip(pieces, cuts, strict=True)]
    lengths = [max(cut.sizes) * side for side, cut in zip(sides, cuts, strict=True)]
    parts = []
    for piece, length in zip(pieces, lengths, strict=True):
        parts.append(piece.reshape(-1))
        if piece.numel() < length:
            parts.append(piece.new_zeros(length - piece.numel()))
    sent = torch.cat(parts)
    received = sent.new_empty(len(cuts[0].sizes), len(sent))
    work = dist.all_gather_into_tensor(received.view(-1), sent, group=cuts[0].group, async_op=True)
    assert work is not None  # this rank is part of the group

    def results() -> list[Tensor]:
        work.wait()
        by_matrix = torch.split(received, lengths, dim=1)
        return [joined(part, side, cut) for part, side, cut in zip(by_matrix, sides, cuts, strict=True)]

    return results


def joined(parts: Tensor | Sequence[Tensor], across: int, cut: Cut) -> Tensor:
    """A matrix, from the flat and perhaps padded pieces of all ranks; ``across`` is the side that is not cut."""
    whole = sum(cut.sizes)  # not -1 in the shapes: a rank that holds nothing of a matrix has across = 0
    if cut.is_even and isinstance(parts, Tensor):
        if cut.rows:
            return parts.reshape(whole, across)
        return parts.reshape(len(parts), across, cut.sizes[0]).transpose(0, 1).reshape(across, whole)
    if cut.rows:
        return torch.cat([part[: s * across].view(s, across) for part, s in zip(parts, cut.sizes, strict=True)])
    return torch.cat([part[: s * across].view(across, s) for part, s in zip(parts, cut.sizes, strict=True)], dim=1)
