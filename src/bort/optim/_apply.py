"""What a step does with a direction: it moves the weight (decoupled), or lends it a penalised gradient (coupled)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        self.lend_all([p], [grad])

    def lend_all(self, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        self._own += [(p, p.grad) for p in params]  # type: ignore[misc]
        for p, grad in zip(params, grads, strict=True):
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
    factor: float | Tensor
    """What directions are multiplied by: W ← W − factor·direction, or g + factor·direction. A tensor where the host does not
    know it."""
    lent: LentGradients
    state: Mapping[Tensor, dict[str, Any]]
    """The base optimizer's."""
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
        direction, number = self._multiplied(direction)
        if not self.spec.decoupled:
            self.lend([torch.add(local_gradient(p), direction, alpha=number).to(p.grad.dtype)], [p])
            return
        local(p).sub_(direction, alpha=number)
        if self.spec.schedule_free and "z" in self.state.get(p, {}):
            # p is a mean of z and x, and x is not stored: moving p and z by the same amount moves x by it as well.
            local(self.state[p]["z"]).sub_(direction, alpha=number)

    def apply_all(
        self,
        batch: list[Weight],
        directions: Tensor | list[Tensor],
        residuals: Tensor,
        into: Mapping[int, Tensor] | None = None,
    ) -> None:
        """``apply`` for many weights in a few calls for all; the residuals are (weights,).

        With ``into``, {slot: a copy of the gradient}, the penalised gradients are written there, and nothing is lent.
        """
        if into is None and (len(batch) == 1 or self.spec.schedule_free or torch.is_grad_enabled()):
            for weight, direction, residual in zip(batch, directions, residuals, strict=True):
                self.apply(weight, direction, residual)
            return
        slots = [slot for slot, _ in batch]
        if self.skip is not None:
            skip = self.skip.to(residuals.device)
            if isinstance(directions, Tensor):
                directions = directions.masked_fill(skip, 0.0)
            else:
                directions = [direction.masked_fill(skip.to(direction.device), 0.0) for direction in directions]
            kept = torch.stack([self.residuals[slot] for slot in slots])
            residuals = torch.where(skip, kept.to(residuals), residuals)
        self._keep(slots, residuals)
        directions, number = self._multiplied(directions)
        moving = [(weight, move) for weight, move in zip(batch, directions, strict=True) if weight[1].grad is not None]
        if not moving:
            return
        params, moves = [p for (_, p), _ in moving], [move for _, move in moving]
        if self.spec.decoupled:
            torch._foreach_sub_([local(p) for p in params], moves, alpha=number)
        elif into is not None:
            own = [into[slot] for (slot, _), _ in moving]
            torch._foreach_copy_(own, torch._foreach_add(own, moves, alpha=number))
        else:
            grads = [local_gradient(p) for p in params]
            penalised = torch._foreach_add(grads, moves, alpha=number)
            self.lend([new.to(g.dtype) for new, g in zip(penalised, grads, strict=True)], params)

    def lend(self, gradients: list[Tensor], params: list[Tensor]) -> None:
        """Penalised gradients, of DTensors this rank's pieces of them."""
        pairs = zip(gradients, params, strict=True)
        self.lent.lend_all(params, [as_dtensor(g, p) if is_dtensor(p) else g for g, p in pairs])  # type: ignore[arg-type]

    def _multiplied(self, directions: Any) -> tuple[Any, float]:
        """Directions, one tensor or a list, and the number that is still to be multiplied: torch takes one along for
        nothing."""
        if not isinstance(self.factor, Tensor):
            return directions, self.factor
        if isinstance(directions, Tensor):
            return directions * self.factor.to(directions.device), 1.0
        return torch._foreach_mul(directions, self.factor.to(directions[0].device)), 1.0

    def _keep(self, slots: list[int], residuals: Tensor) -> None:
        if self.residuals.device.type == "cpu":
            self.residuals[slots] = residuals.to(self.residuals)
        else:  # a list of slots would be uploaded, and the host wait for it
            torch._foreach_copy_([self.residuals[slot] for slot in slots], list(residuals))
