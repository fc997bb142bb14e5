r"""The pull so far, counted step by step: :math:`P = \lambda \sum_t \alpha_t / (1 - \mu)` (`bort.optim._pull`).

μ is the momentum of SGD where the penalty is coupled; with dampening τ, λ is (1 − τ) times as large there, but for
the first step, which is not counted apart. Coupled to another
optimizer (``decoupled=False`` with Adam), the penalty is scaled with the gradient, and there is no such number.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD

from bort.optim import Bort


class PullCount:
    """Counts in a hook on the optimizer's step, so it sees each step that is really made, with its own rate, whatever
    accumulates gradients, wraps the optimizer or skips steps."""

    def __init__(self, optimizer: Bort, before: float = 0.0) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._before = before
        """The pull of the part of the training before this process."""
        self._totals: list[Tensor] = []
        """Of each param group, on its device: nothing is read back between measurements, and steps that are captured in a
        CUDA graph go on counting when it is replayed."""
        self._add_missing_totals(optimizer)
        self._hook = optimizer.register_step_post_hook(self._count)

    def restart(self, before: float) -> None:
        self._before = before
        for total in self._totals:
            total.zero_()

    @property
    def optimizer(self) -> Bort | None:
        """None if nobody else holds it any more."""
        return self._optimizer()

    def stop(self) -> None:
        self._hook.remove()

    def read(self) -> float | None:
        """The smallest of all groups that have a constraint; None where there is none. They are equal unless some have a λ or
        a rate of their own."""
        optimizer = self.optimizer
        if optimizer is None:
            return None
        self._add_missing_totals(optimizer)
        pairs = zip(optimizer.param_groups, self._totals, strict=True)
        acting = [
            (group, total) for group, total in pairs if group["constraint"] and any(p.ndim > 1 for p in group["params"])
        ]
        if not acting or not all(_has_pull(optimizer, group) for group, _ in acting):
            return None
        return self._before + min(total.item() for _, total in acting)

    @torch.no_grad()
    def _count(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._add_missing_totals(optimizer)
        found_inf = getattr(optimizer, "found_inf", None)  # by which an optimizer skips a step without the host knowing
        for group, total in zip(optimizer.param_groups, self._totals, strict=True):
            if group["constraint"] and _has_pull(optimizer, group):
                pull = _pull_of_step(group, total.device)
                total += pull if found_inf is None else pull * (found_inf.reshape(()).to(total) == 0).to(total)

    def _add_missing_totals(self, optimizer: Bort) -> None:
        """Groups may be added during a training."""
        for group in optimizer.param_groups[len(self._totals) :]:
            device = group["params"][0].device if group["params"] else None
            self._totals.append(torch.zeros((), dtype=torch.float64, device=device))


def _has_pull(optimizer: Bort, group: dict[str, Any]) -> bool:
    return group.get("lr") is not None and (group["decoupled"] or isinstance(optimizer, SGD))


def _pull_of_step(group: dict[str, Any], device: torch.device) -> float | Tensor:
    momentum = 0.0 if group["decoupled"] else float(group.get("momentum") or 0.0)
    entering = 1 - float(group.get("dampening") or 0.0) if momentum else 1.0
    pull: float | Tensor = _there(group["lr"], device) * (group["constraint"] * entering / (1 - momentum))
    if group["warmup"]:
        steps = _there(group.get("penalty_step", 0), device) / group["warmup"]
        pull = pull * (steps.clamp(max=1.0) if isinstance(steps, Tensor) else min(1.0, steps))
    return pull


def _there(value: float | Tensor, device: torch.device) -> float | Tensor:
    return value.to(device) if isinstance(value, Tensor) and value.device.type != "cpu" else value
