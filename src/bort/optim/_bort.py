r"""Bort-X: what `bortify` adds to an optimizer X (paper, section 3.3).

.. math::
    \text{coupled} \quad   g &\leftarrow g + \lambda (W W^T W - s W), \text{ then X's own step on } g   && \text{equ:bort} \\
    \text{decoupled} \quad W &\leftarrow W - \alpha \lambda (W W^T W - s W), \text{ then X's own step}

Coupled, the penalty passes through weight decay and momentum with the gradient. Decoupled, it acts on the weight itself, as
weight decay does in AdamW, and no adaptive scaling distorts it.
"""

from __future__ import annotations

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
        self._residuals: dict[Tensor, Tensor] = {}
        super().__init__(*args, **kwargs)
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
        _settings.warn(self.param_groups[index], index, stacklevel=5)

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
        with torch.set_grad_enabled(self.defaults.get("differentiable", False)):
            originals = self._apply_penalties()
        try:
            type(self)._base_step(self)
        finally:
            for p, grad in originals:
                p.grad = grad
        return loss

    def _apply_penalties(self) -> list[tuple[Tensor, Tensor]]:
        """Move decoupled weights; lend coupled ones a penalised gradient. Returns the gradients to give back."""
        originals: list[tuple[Tensor, Tensor]] = []
        for group in self.param_groups:
            if group["constraint"] == 0 or not _is_due(group):
                continue
            strength = group["constraint"] * group["every"]
            for name, p in _settings.constrained(group):
                if p.grad is None:
                    continue
                _settings.check_gradient(p.grad, name)
                direction = self._direction(p, group, strength)
                if group["decoupled"]:
                    self._decouple(p, group, direction * (group["lr"] * strength))
                else:
                    originals.append((p, p.grad))
                    p.grad = self._couple(p.grad, direction * (-strength if group.get("maximize") else strength))
        return originals

    def _direction(self, p: Tensor, group: dict[str, Any], strength: float) -> Tensor:
        """The guarded W WᵀW − s·W, in p's shape; notes the residual on the way."""
        mode = group["mode"]
        # With differentiable=True the step itself will write into p, which autograd still needs as it was.
        weight = p.clone() if torch.is_grad_enabled() else p.detach()
        with matmul_precision(group["precision"]):
            w = penalty.matrices(weight, blocks=group["blocks"], transposed=group["transposed"])
            s = penalty.target(w, group["scale"])
            e = penalty.defect(w, s, mode)
            self._note_residual(p, penalty.distance(e.detach()))
            d = e.sign() if penalty.is_l1(mode) else e
            factor = _guard.damping(
                d.detach(),
                group.get("lr", 1.0) * strength,
                s,
                momentum=_settings.momentum_of(group),
                full=mode.endswith("full"),
                l1=penalty.is_l1(mode),
            )
            return penalty.restore(
                penalty.pull(w, d if factor is None else d * factor.to(d.dtype), mode),
                weight,
                transposed=group["transposed"],
            )

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

    def _note_residual(self, p: Tensor, distance: Tensor) -> None:
        # In place, so that a captured CUDA graph keeps writing where residuals() reads.
        kept = self._residuals.get(p)
        if kept is None or kept.device != distance.device:
            self._residuals[p] = distance.clone()
        else:
            kept.copy_(distance)

    @torch.no_grad()
    def residuals(self) -> dict[str, float]:
        """Each constrained weight's distance to its constraint (:func:`bort.penalty.residual`), for logging.

        The numbers come from the Gram matrices of the last penalty step and cost one read back from the device; a
        weight that has not had a step yet is measured now. Keys are parameter names where the optimizer was given them,
        otherwise "group.index".
        """
        found: dict[str, Tensor] = {}
        for index, group in enumerate(self.param_groups):
            for name, p in _settings.constrained(group):
                if p not in self._residuals:
                    self._note_residual(
                        p,
                        penalty.residual(p, **{key: group[key] for key in ("scale", "mode", "blocks", "transposed")}),
                    )
                found[name if "param_names" in group else f"{index}.{name}"] = self._residuals[p]
        if not found:
            return {}
        device = next(iter(found.values())).device
        values = torch.stack([value.to(device, torch.float64) for value in found.values()]).tolist()
        return dict(zip(found, values, strict=True))


@torch.compiler.disable
def _count(group: dict[str, Any]) -> bool:
    group["penalty_step"] = group.get("penalty_step", 0) + 1
    return bool(group["penalty_step"] % group["every"] == 0)


def _is_due(group: dict[str, Any]) -> bool:
    """Whether this step is a k-th one. The count lives in the group, so that a checkpoint carries it."""
    if group["every"] == 1:
        return True
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"every={group['every']} cannot be captured in a CUDA graph: each replay would repeat the decision of "
            "one step. Use every=1 with a captured step."
        )
    return _count(group)
