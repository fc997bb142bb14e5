"""Which steps have a penalty (``every``), and how much of λ (``warmup``). Steps are counted in the group, as
``penalty_step``, so that a checkpoint carries the count.

As a rule the count is a number, and the host decides. But a CUDA graph repeats the decision of the step that was captured. So
where a step may be captured, the count is a tensor on the device, which goes on counting when the graph is replayed, and what
follows from it is computed there. All steps are then the same launches; the kernels return at once if no penalty is due.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bort.optim._spec import is_fake
from bort.optim.kernels import is_capturing


@dataclass(frozen=True, slots=True)
class Turn:
    """What one step has of the penalty."""

    warm: float | Tensor = 1.0
    """The part of λ that a warm-up has reached, from 0 to 1."""
    skip: Tensor | None = None
    """On the device: True if the step has no penalty after all. None: it has one."""


def next_turn(group: dict[str, Any], found_inf: Tensor | None) -> Turn | None:
    """Count a step of the group. None: it has no penalty, and the host knows.

    ``found_inf`` is GradScaler's: not 0 if the step has to leave everything as it is.
    """
    if not group["params"] or not group.get("train_mode", True):  # schedule-free, switched to evaluation
        return None
    lr, every, warmup = group.get("lr"), group["every"], group["warmup"]
    if lr is not None and not _is_on_device(lr) and lr == 0:
        # Nothing moves, so nothing may be left behind: torch.distributed.checkpoint makes such a step to create the state
        # of an optimizer, and a penalty would stay in its momentum.
        return None
    called_off = _called_off(group, found_inf)
    if every == 1 and not warmup:
        return Turn(skip=called_off)
    if not _counts_on_device(group):
        if is_capturing():
            raise RuntimeError(
                f"every={every}: a step that is captured in a CUDA graph has to count on the device. Give the optimizer its "
                "lr as a tensor there, or capturable=True."
            )
        steps = group["penalty_step"] = int(group.get("penalty_step", 0)) + 1
        return None if steps % every else Turn(min(1.0, steps / warmup) if warmup else 1.0, called_off)
    count = _count(group)
    count += 1 if called_off is None else called_off.logical_not()
    warm = torch.clamp(count / warmup, max=1.0) if warmup else 1.0
    if every == 1:
        return Turn(warm, called_off)
    between = count % every != 0
    return Turn(warm, between if called_off is None else between | called_off)


def _called_off(group: dict[str, Any], found_inf: Tensor | None) -> Tensor | None:
    """On the device: whether this step must leave no trace, for what the host does not know."""
    reasons = []
    if found_inf is not None:
        reasons.append(found_inf != 0)
    if _is_on_device(group.get("lr")):
        reasons.append(group["lr"] == 0)
    if not reasons:
        return None
    device = group["params"][0].device
    return functools.reduce(torch.logical_or, [reason.reshape(()).to(device) for reason in reasons])


def _counts_on_device(group: dict[str, Any]) -> bool:
    """Whether a step may be captured: the optimizer was told so, or its rate is on the device, as it has to be for a schedule
    of captured steps. A warm-up alone is counted there on any GPU, since it costs nothing."""
    first = group["params"][0]
    return bool(
        group.get("capturable")
        or _is_on_device(group.get("lr"))
        or (group["every"] == 1 and first.is_cuda and not is_fake(first))
    )


def _count(group: dict[str, Any]) -> Tensor:
    steps, device = group.get("penalty_step", 0), group["params"][0].device
    if not isinstance(steps, Tensor) or steps.device != device:
        if is_capturing():
            raise RuntimeError(
                f"every={group['every']}, warmup={group['warmup']}: make a step before the one that is captured in a CUDA "
                "graph, so that the count of steps is on the device"
            )
        steps = group["penalty_step"] = torch.tensor(float(steps), dtype=torch.float32, device=device)
    return steps


def _is_on_device(lr: float | Tensor | None) -> bool:
    """Whether reading it would make the host wait."""
    return isinstance(lr, Tensor) and (lr.device.type != "cpu" or is_fake(lr))
