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
            grad = torch.add(local_gradient(p), direction, alpha=number).to(p.grad.dtype)
            self.lent.lend(p, as_dtensor(grad, p) if is_dtensor(p) else grad)  # type: ignore[arg-type]
            return
        local(p).sub_(direction, alpha=number)
        if self.spec.schedule_free and "z" in self.state.get(p, {}):
            # p is a mean of z and x, and x is not stored: moving p and z by the same amount moves x by it as well.
            local(self.state[p]["z"]).sub_(direction, alpha=number)

    def apply_all(
        self, batch: list[Weight], directions: Tensor, residuals: Tensor, into: Mapping[int, Tensor] | None = None
    ) -> None:
        """``apply`` for whole weights that have a gradient, (weights, *shape) and (weights,), in a few calls for all.

        With ``into``, {slot: a copy of the gradient}, the penalised gradients are written there, and nothing is lent.
        """
        if into is None and (len(batch) == 1 or self.spec.schedule_free or torch.is_grad_enabled()):
            for weight, direction, residual in zip(batch, directions, residuals, strict=True):
                self.apply(weight, direction, residual)
            return
        slots, params = [slot for slot, _ in batch], [p for _, p in batch]
        if self.skip is not None:
            skip = self.skip.to(directions.device)
            directions = directions.masked_fill(skip, 0.0)
            kept = torch.stack([self.residuals[slot] for slot in slots])
            residuals = torch.where(skip, kept.to(directions.device), residuals)
        self._keep(slots, residuals)
        directions, number = self._multiplied(directions)
        moves = list(directions)
        if self.spec.decoupled:
            torch._foreach_sub_(params, moves, alpha=number)
            return
        own: list[Tensor] = [p.grad for p in params] if into is None else [into[slot] for slot in slots]  # type: ignore[misc]
        penalised = torch._foreach_add(own, moves, alpha=number)
        if into is not None:
            torch._foreach_copy_(own, penalised)
            return
        self.lent.lend_all(params, [grad.to(g.dtype) for grad, g in zip(penalised, own, strict=True)])

    def _multiplied(self, directions: Tensor) -> tuple[Tensor, float]:
        """Directions and the number that is still to be multiplied: torch takes one along for nothing."""
        if isinstance(self.factor, Tensor):
            return directions * self.factor.to(directions.device), 1.0
        return directions, self.factor

    def _keep(self, slots: list[int], residuals: Tensor) -> None:
        if self.residuals.device.type == "cpu":
            self.residuals[slots] = residuals.to(self.residuals)
        else:  # a list of slots would be uploaded, and the host wait for it
            torch._foreach_copy_([self.residuals[slot] for slot in slots], list(residuals))
