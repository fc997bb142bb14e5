r"""Bort-X: what `bortify` adds to an optimizer X (paper, section 3.3).

.. math::
    \text{coupled} \quad   g &\leftarrow g + \lambda (W W^T W - s W), \text{ then X's own step on } g   && \text{equ:bort} \\
    \text{decoupled} \quad W &\leftarrow W - \alpha \lambda (W W^T W - s W), \text{ then X's own step}

Coupled, the penalty passes through weight decay and momentum with the gradient. Decoupled, it acts on the weight itself, as
weight decay does in AdamW, and no adaptive scaling distorts it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from bort import penalty
from bort.optim import _guard, _settings
from bort.optim._precision import matmul_precision


class Bort(Optimizer):
    """The mixin in front of a torch optimizer. Made by :func:`bort.bortify`; see there for the arguments."""

    _base_step: ClassVar[Callable[[Optimizer], Any]]
    _decoupled: ClassVar[bool]
    _writes_gradients: ClassVar[bool]

    def __init__(
        self,
        *args: Any,
        constraint: float = 0.1,
        decoupled: bool | None = None,
        every: int = 1,
        scale: penalty.Scale = 1.0,
        mode: penalty.Mode = "full",
        precision: str = "highest",
        **kwargs: Any,
    ) -> None:
        self._settings: dict[str, Any] = {
            "constraint": constraint,
            "decoupled": self._decoupled if decoupled is None else decoupled,
            "every": every,
            "scale": scale,
            "mode": mode,
            "precision": precision,
            **_settings.LAYOUT,
        }
        super().__init__(*args, **kwargs)
        self._residuals: dict[int, Tensor] = {}
        for index, group in enumerate(self.param_groups):
            _settings.warn(group, index, stacklevel=3)
        wanted = [group for group in self.param_groups if group["constraint"]]
        if wanted and not any(True for group in wanted for _ in _settings.constrained(group)):
            warnings.warn(
                f"{type(self).__name__} has nothing to constrain: none of its "
                f"{sum(len(group['params']) for group in wanted)} parameters with constraint > 0 has two or more dimensions.",
                stacklevel=2,
            )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        # The base class calls this from its __init__, when `defaults` holds its own settings and not yet ours.
        for key, default in self._settings.items():
            self.defaults.setdefault(key, default)
        super().add_param_group(param_group)
        index = len(self.param_groups) - 1
        try:
            _settings.check(self.param_groups[index], index)
        except Exception:
            self.param_groups.pop()  # refused: leave the optimizer as it was
            raise
        if "_residuals" in self.__dict__:  # added later by the user; __init__ has its own warnings, at the user's line
            _settings.warn(self.param_groups[index], index, stacklevel=3)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Also reached through load_state_dict: a checkpoint of the plain optimizer leaves our settings as they are now.
        before = self.__dict__.get("param_groups", [])
        super().__setstate__(state)
        if "_settings" not in self.__dict__:  # unpickled or copied: torch keeps defaults, groups and state only
            self._settings = {key: self.defaults[key] for key in (*_settings.SETTINGS, *_settings.LAYOUT)}
            self._residuals = {}
        for index, group in enumerate(self.param_groups):
            current = before[index] if index < len(before) else self._settings
            for key in self._settings:
                group.setdefault(key, current[key])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of the base optimizer with the penalty in it. A closure is evaluated first, once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        lent: list[tuple[Tensor, Tensor]] = []
        try:
            with torch.set_grad_enabled(self.defaults.get("differentiable", False)):
                self._apply_penalties(lent)
            if self._writes_gradients:
                self._lend_copies(lent)
            type(self)._base_step(self)
        finally:
            for p, grad in lent:
                p.grad = grad
        return loss

    @torch.compiler.disable(recursive=False)  # type: ignore[no-untyped-call, untyped-decorator]  # decisions stay in Python; what they call is compiled
    def _apply_penalties(self, lent: list[tuple[Tensor, Tensor]]) -> None:
        """Move decoupled weights; lend coupled ones a penalised gradient, and note in ``lent`` what to give back.

        ``.grad`` itself is never written to: it is the user's, and may be shared.
        """
        for group in self.param_groups:
            for name, p in _settings.constrained(group):
                if p.grad is not None:
                    _settings.check_gradient(p.grad, name)  # all of them, before anything has moved
        for index, group in enumerate(self.param_groups):
            if group["constraint"] and _is_due(group):
                with matmul_precision(group["precision"]):
                    self._penalise(group, self._residuals_of(index), lent)

    def _penalise(self, group: dict[str, Any], residuals: Tensor, lent: list[tuple[Tensor, Tensor]]) -> None:
        strength = group["constraint"] * group["every"]
        for slot, (_, p) in enumerate(_settings.constrained(group)):
            if p.grad is None:
                continue
            direction, distance = _direction(p, group, strength)
            residuals[slot].copy_(distance)
            if group["decoupled"]:
                self._decouple(p, group, direction * (group["lr"] * strength))
            else:
                lent.append((p, p.grad))
                p.grad = self._couple(p.grad, direction * (-strength if group.get("maximize") else strength))

    def _lend_copies(self, lent: list[tuple[Tensor, Tensor]]) -> None:
        """timm's LAMB clips the gradients in place; ours gives it copies to clip."""
        have = {p for p, _ in lent}
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and p not in have:
                    lent.append((p, p.grad))
                    p.grad = p.grad.clone()

    def _couple(self, grad: Tensor, addition: Tensor) -> Tensor:
        # A fused optimizer under GradScaler gets gradients that are still multiplied by grad_scale, and divides itself.
        grad_scale = getattr(self, "grad_scale", None)
        if grad_scale is not None:
            addition = addition * grad_scale.to(addition.device)
        return grad + addition.to(grad.dtype)

    def _decouple(self, p: Tensor, group: dict[str, Any], move: Tensor) -> None:
        found_inf = getattr(self, "found_inf", None)
        if found_inf is not None:  # a fused step that GradScaler has called off: the weight must not move by a bit
            move = torch.where(found_inf.to(move.device) > 0, torch.zeros_like(move), move)
        move = move.to(p.dtype)
        p.sub_(move)
        if "train_mode" in group and "z" in self.state.get(p, {}):
            self.state[p]["z"].sub_(move)  # schedule-free: p is a mean of z and x; moving both moves x as well

    def _residuals_of(self, index: int) -> Tensor:
        """Where a group's residuals are kept, nan before the first step. Always the same memory: a captured CUDA graph
        goes on writing where residuals() reads."""
        weights = [p for _, p in _settings.constrained(self.param_groups[index])]
        device = weights[0].device if weights else None
        kept = self._residuals.get(index)
        if kept is None or len(kept) != len(weights) or kept.device != device:
            kept = self._residuals[index] = torch.full((len(weights),), torch.nan, device=device)
        return kept

    @torch.no_grad()
    def residuals(self) -> dict[str, float]:
        """Each constrained weight's distance to its constraint (:func:`bort.penalty.residual`), for logging.

        The numbers come from the Gram matrices of the last penalty step and cost one read back from the device; a
        weight that has not had a step yet is measured now. Keys are parameter names where the optimizer was given them,
        otherwise "group.index".
        """
        found: dict[str, float] = {}
        for index, group in enumerate(self.param_groups):
            reading = {key: group[key] for key in ("scale", "mode", "blocks", "transposed")}
            for (name, p), value in zip(_settings.constrained(group), self._residuals_of(index).tolist(), strict=True):
                found[name if "param_names" in group else f"{index}.{name}"] = (
                    penalty.residual(p, **reading).item() if math.isnan(value) else value
                )
        return found


def _direction(p: Tensor, group: dict[str, Any], strength: float) -> tuple[Tensor, Tensor]:
    """The guarded W WᵀW − s·W in p's shape, and the residual, which comes out of the same Gram matrix."""
    mode = group["mode"]
    # With differentiable=True the step itself will write into p, which autograd still needs as it was.
    weight = p.clone() if torch.is_grad_enabled() else p.detach()
    w = penalty.matrices(weight, blocks=group["blocks"], transposed=group["transposed"])
    s = penalty.target(w, group["scale"])
    e = penalty.defect(w, s, mode)
    d = e.sign() if penalty.is_l1(mode) else e
    factor = _guard.damping(
        d.detach(),
        group.get("lr", 1.0) * strength,
        s,
        momentum=_settings.momentum_of(group),
        full=mode.endswith("full"),
        l1=penalty.is_l1(mode),
    )
    if factor is not None:
        d = d * factor.to(d.dtype)
    return penalty.restore(penalty.pull(w, d, mode), weight, transposed=group["transposed"]), penalty.distance(
        e.detach()
    )


def _is_due(group: dict[str, Any]) -> bool:
    """Whether this step is a k-th one. The count lives in the group, so that a checkpoint carries it."""
    if group["every"] == 1:
        return True
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"every={group['every']} cannot be captured in a CUDA graph: each replay would repeat the decision of "
            "one step. Use every=1 with a captured step."
        )
    group["penalty_step"] = group.get("penalty_step", 0) + 1
    return bool(group["penalty_step"] % group["every"] == 0)
