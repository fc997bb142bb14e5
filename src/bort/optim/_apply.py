"""What is done with a penalty's direction once it is known: the weight is moved, or a penalised gradient lent to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bort.optim._plain_torch import Judged, Weight
from bort.optim.sharded._layout import as_dtensor, is_dtensor, local, local_gradient


@dataclass
class Turn:
    """One param group in one step."""

    index: int
    group: dict[str, Any]
    judged: Judged
    residuals: Tensor
    lent: list[tuple[Tensor, Tensor]]
    distributed: bool


def move(optimizer: Optimizer, weight: Weight, direction: Tensor, distance: Tensor, turn: Turn) -> None:
    """Decoupled: the weight moves. Coupled: it gets a penalised gradient for the base optimizer's step."""
    slot, p = weight
    turn.residuals[slot].copy_(distance)
    if p.grad is None:
        return
    if turn.group["decoupled"]:
        _decouple(optimizer, p, turn.group, direction)
    else:
        lend(p, _couple(optimizer, p, turn.group, direction), turn.lent)


def lend(p: Tensor, grad: Tensor, lent: list[tuple[Tensor, Tensor]]) -> None:
    """Another gradient until the end of the step; ``lent`` says what to give back."""
    assert p.grad is not None
    lent.append((p, p.grad))
    p.grad = grad


def _couple(optimizer: Optimizer, p: Tensor, group: dict[str, Any], direction: Tensor) -> Tensor:
    assert p.grad is not None
    strength = group["constraint"] * group["every"] * (-1.0 if group.get("maximize") else 1.0)
    # A fused optimizer under GradScaler gets gradients that are still multiplied by grad_scale, and divides itself.
    grad_scale = getattr(optimizer, "grad_scale", None)
    if grad_scale is not None:
        direction = direction * grad_scale.to(direction.device)
    grad = torch.add(local_gradient(p), direction, alpha=strength).to(p.grad.dtype)
    return as_dtensor(grad, p) if is_dtensor(p) else grad  # type: ignore[arg-type]


def _decouple(optimizer: Optimizer, p: Tensor, group: dict[str, Any], direction: Tensor) -> None:
    lr, strength = group["lr"], group["constraint"] * group["every"]
    found_inf = getattr(optimizer, "found_inf", None)
    if found_inf is not None:  # a fused step that GradScaler has called off: the weight must not move by a bit
        direction = torch.where(found_inf.to(direction.device) > 0, torch.zeros_like(direction), direction)
    if isinstance(lr, Tensor):
        direction, lr = direction * lr, 1.0
    local(p).sub_(direction, alpha=lr * strength)
    if "train_mode" in group and "z" in optimizer.state.get(p, {}):
        # schedule-free: p is a mean of z and x; moving both moves x as well
        local(optimizer.state[p]["z"]).sub_(direction, alpha=lr * strength)
