"""What a monitor is given (an optimizer, a model, param groups), read as a list of weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from bort._inspect import uncompiled_name, unwrapped
from bort.layers import LinearMap
from bort.optim import Bort, ParamGroups, param_groups
from bort.optim.sharded import is_dtensor, unsupported
from bort.penalty import Mode, Scale


@dataclass(frozen=True)
class ConstrainedWeight:
    name: str
    weight: Tensor
    linear: LinearMap
    scale: Scale | Literal["initial"] = 1.0
    mode: Mode = "full"
    initial_scale: Tensor | None = None
    """With the scale "initial", after the first step: (blocks,), the scale that each block had then."""

    @property
    def has_default_target(self) -> bool:
        """Whether its constraint is WᵀW = I, whose residual :func:`bort.layers.spectra` has."""
        return self.scale == 1.0 and self.mode == "full"


def unwrapped_optimizer(source: Any) -> Any:
    """The optimizer inside what Accelerate, Lightning, Fabric and DeepSpeed put around it. All of them call it ``optimizer``;
    Lightning's wrapper also poses as an instance of the class that it wraps."""
    while (inner := getattr(source, "optimizer", None)) is not None:
        source = inner
    return source


def constrained_weights(source: Any, model: nn.Module | None) -> tuple[list[ConstrainedWeight], str | None]:
    """The weights to measure, each once, and if there are none, a sentence that says why. ``model`` names the weights of an
    optimizer."""
    if isinstance(source, nn.Module):
        source = param_groups(unwrapped(source))
    if isinstance(source, ParamGroups):
        weights = _of_groups(source)
        problem = (
            "the model has no linear map that is trained, whole or as a DTensor; see print(bort.param_groups(model))"
        )
        return weights, None if weights else problem
    optimizer, name = unwrapped_optimizer(source), type(source).__name__
    if not isinstance(optimizer, Bort):
        return [], f"{name} is not a Bort optimizer and has no constraint; give the model to measure its weights anyway"
    weights = _of_optimizer(optimizer, model)
    return weights, None if weights else f"no parameter of {name} has a constraint (λ > 0, two or more dimensions)"


def _of_groups(groups: ParamGroups) -> list[ConstrainedWeight]:
    return [
        ConstrainedWeight(uncompiled_name(name), p, LinearMap("", group["blocks"], group["transposed"]))
        for group in groups
        if group["constraint"]
        for name, p in _named(group)
        if _is_measurable(name, p)
    ]


def _named(group: dict[str, Any]) -> Iterable[tuple[str, Tensor]]:
    """An optimizer that has taken the group has put the names beside the parameters."""
    return zip(group["param_names"], group["params"], strict=True) if "param_names" in group else group["params"]


def _is_measurable(name: str, p: Tensor) -> bool:
    reason = unsupported(p) if is_dtensor(p) else None
    if reason is not None:
        warnings.warn(f"bort.monitor leaves {name!r} out: it {reason}", stacklevel=2)
    return reason is None


def _of_optimizer(optimizer: Bort, model: nn.Module | None) -> list[ConstrainedWeight]:
    groups = {id(p): group for group in optimizer.param_groups if group["constraint"] for p in group["params"]}
    named = [] if model is None else unwrapped(model).named_parameters()
    names = {id(p): uncompiled_name(name) for name, p in named}
    weights: dict[int, ConstrainedWeight] = {}
    for name, p in optimizer.constrained():
        group = groups[id(p)]
        linear = LinearMap("", group["blocks"], group["transposed"])
        initial = optimizer.state.get(p, {}).get("initial_scale")
        if not isinstance(initial, Tensor):  # torch.distributed.checkpoint writes {} for what is missing
            initial = None
        weight = ConstrainedWeight(names.get(id(p), name), p, linear, group["scale"], group["mode"], initial)
        weights.setdefault(id(p), weight)  # a parameter may be listed twice
    return list(weights.values())
