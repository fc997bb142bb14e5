"""What a step does with a direction: it moves the weight (decoupled), or lends it a penalised gradient (coupled)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bort.optim._spec import PenaltySpec, Weight
from bort.optim._stability import Stability
from bort.optim.sharded import as_dtensor, is_dtensor, local, local_gradient


class LentGradients:
    """Gradients that parameters carry during one step in place of their own.

    ``.grad`` belongs to the user and may be shared, so it is never written to: it is replaced, and put back after the step.
    """

    def __init__(self) -> None:
        self._own: list[tuple[Tensor, Tensor]] = []

    def lend(self, p: Tensor, grad: Tensor) -> None:
        assert p.grad is not None
        self._own.append((p, p.grad))
        p.grad = grad

    def lend_copies(self, params: Iterable[Tensor]) -> None:
        """For base optimizers that write into gradients: a copy to each parameter that has not been lent one yet."""
        lent = {p for p, _ in self._own}
        for p in params:
            if p.grad is not None and p not in lent:
                self.lend(p, p.grad.clone())

    def give_back(self) -> None:
        for p, grad in self._own:
            p.grad = grad


@dataclass(slots=True)
class GroupStep:
    """One param group in one step."""

    spec: PenaltySpec
    weights: list[Weight]
    """The weights to compute a penalty for. Ranks that compute together (DTensors, ``shard=True``) all list the same
    weights, also those that have no gradient here: such a weight is computed, and then not moved."""
    stability: Stability
    residuals: Tensor
    """One number for each slot of the group."""
    lr: float | Tensor | None
    lent: LentGradients
    state: Mapping[Tensor, dict[str, Any]]
    """The base optimizer's."""
    grad_scale: Tensor | None
    """Set by GradScaler on fused optimizers: gradients are still multiplied by it, the optimizer's kernel divides."""
    skip: Tensor | None
    """On the device: True if the step has no penalty, which the host does not know."""
    distributed: bool

    def apply(self, weight: Weight, direction: Tensor, residual: Tensor) -> None:
        slot, p = weight
        if self.skip is not None:
            skip = self.skip.to(direction.device)
            # Not "direction · 0", which is nan where the direction is not finite.
            direction = direction.masked_fill(skip, 0.0)
            residual = torch.where(skip, self.residuals[slot].to(direction.device), residual)
        self.residuals[slot].copy_(residual)
        if p.grad is None:
            return
        if self.spec.decoupled:
            self._decouple(p, direction)
        else:
            self.lent.lend(p, self._couple(p, direction))

    def _couple(self, p: Tensor, direction: Tensor) -> Tensor:
        """g + λ·direction, for the base optimizer's step."""
        assert p.grad is not None
        strength = -self.spec.strength if self.spec.maximize else self.spec.strength
        if self.spec.strength_tensor is not None:
            direction = direction * self.spec.strength_tensor
        if self.grad_scale is not None:
            direction = direction * self.grad_scale.to(direction.device)
        grad = torch.add(local_gradient(p), direction, alpha=strength).to(p.grad.dtype)
        return as_dtensor(grad, p) if is_dtensor(p) else grad  # type: ignore[arg-type]

    def _decouple(self, p: Tensor, direction: Tensor) -> None:
        """W ← W − α·λ·direction."""
        assert self.lr is not None  # `_settings.check` refuses decoupled groups without one
        lr = self.lr
        if self.spec.strength_tensor is not None:
            direction = direction * self.spec.strength_tensor
        if isinstance(lr, Tensor):
            direction, lr = direction * lr, 1.0
        local(p).sub_(direction, alpha=lr * self.spec.strength)
        if self.spec.schedule_free and "z" in self.state.get(p, {}):
            # p is a mean of z and x, and x is not stored: moving p and z by the same amount moves x by it as well.
            local(self.state[p]["z"]).sub_(direction, alpha=lr * self.spec.strength)
