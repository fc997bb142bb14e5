"""What a param group says about its constraint, checked when it is added; every complaint names the group or parameter."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Final, NoReturn

import torch
from torch import Tensor, nn

from bort.optim._spec import PenaltySpec, Weight, constrained, is_fake, is_lookup, named
from bort.optim.sharded import is_dtensor, unsupported
from bort.penalty import MODES

SETTINGS: Final = ("constraint", "decoupled", "every", "warmup", "scale", "mode", "precision", "shard")
# Settings that optimizers pickled by version 0.1.0 do not have.
LATER: Final[dict[str, Any]] = {"warmup": 0, "layers_known": True}
PRECISIONS: Final = ("highest", "high", "medium")

# Where the matrix is in the tensor, and whether somebody who has seen the layers says so: `param_groups` does.
LAYOUT: Final[dict[str, Any]] = {"blocks": 1, "transposed": False, "layers_known": False}

# a/(1 − μ)² of the heavy ball on (σ² − s)², a = lr·λ·s, from which on σ swings more than a quarter beyond √s (simulation from
# starts below √s, for μ from 0.9 to 0.995).
_SWING: Final = 6

_WAY_OUT: Final = "put it in a param group of its own with constraint=0"


def make_numbers_plain(group: dict[str, Any]) -> None:
    """Numbers of other libraries as Python's own: torch.load refuses numpy's in a state dict."""
    for kind, plain, keys in ((Real, float, ("constraint", "scale")), (Integral, int, ("every", "warmup", "blocks"))):
        for key in keys:
            if isinstance(group[key], kind) and type(group[key]) not in (bool, int, float):
                group[key] = plain(group[key])


def check(group: dict[str, Any], index: int) -> None:
    """Refuse settings that mean nothing (ValueError, TypeError) before the first step."""
    where = f"param group {index}"
    constraint = group["constraint"]
    if isinstance(constraint, bool) or not isinstance(constraint, (int, float)) or not 0 <= constraint < math.inf:
        raise ValueError(
            f"constraint={constraint!r} in {where}: λ must be a finite number ≥ 0 (0 switches the constraint off)"
        )
    for key in ("decoupled", "shard"):
        if not isinstance(group[key], bool):
            raise ValueError(f"{key}={group[key]!r} in {where}: must be True or False")
    every = group["every"]
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise ValueError(f"every={every!r} in {where}: must be a whole number ≥ 1, the steps between two penalties")
    warmup = group["warmup"]
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise ValueError(
            f"warmup={warmup!r} in {where}: must be a whole number ≥ 0, the steps until λ has its full value"
        )
    scale = group["scale"]
    if scale not in ("adaptive", "initial") and (
        isinstance(scale, (bool, str)) or not isinstance(scale, (int, float)) or not 0 < scale < math.inf
    ):
        raise ValueError(f'scale={scale!r} in {where}: must be a finite number > 0, "adaptive" or "initial"')
    if group["mode"] not in MODES:
        raise ValueError(f"mode={group['mode']!r} in {where}: choose one of {', '.join(MODES)}")
    if group["precision"] not in PRECISIONS:
        raise ValueError(f"precision={group['precision']!r} in {where}: choose one of {', '.join(PRECISIONS)}")
    if group["decoupled"] and constraint and group.get("lr") is None:
        raise ValueError(
            f"decoupled=True in {where}: this optimizer has no lr to scale the penalty; use decoupled=False"
        )
    if scale == "adaptive" and group["mode"].endswith("columns"):
        raise ValueError(
            f"scale='adaptive' with mode={group['mode']!r} in {where}: the target is the mean norm of the *rows*, which "
            "columns cannot reach together; give a number, or use mode='rows' or 'full'"
        )
    if constraint:
        for name, p in named(group):
            _check_kind(p, f"parameter {name!r} of {where}")
    for name, p in constrained(group):
        _check_weight(p, f"parameter {name!r} of {where}", group["blocks"])


def refuse_foreign(model: nn.Module) -> None:
    """Of a module whose parameters are laid out in ways of which nobody can tell the matrices."""
    for name, p in model.named_parameters():
        _check_foreign(p, f"parameter {name!r}")


def _check_foreign(p: Tensor, label: str) -> None:
    kind = next((kind for kind, is_one in _FOREIGN.items() if is_one(p)), None)
    if kind is not None:
        raise TypeError(f"{label} is {kind}, whose local piece is not a matrix; use fully_shard (FSDP2), or {_WAY_OUT}")


def _check_kind(p: Tensor, label: str) -> None:
    _check_foreign(p, label)
    reason = unsupported(p) if p.ndim >= 2 and is_dtensor(p) else None
    if reason is not None:
        raise TypeError(f"{label} {reason}; {_WAY_OUT}")


def _check_weight(p: Tensor, label: str, blocks: int) -> None:
    if p.is_complex():
        raise TypeError(f"{label} is complex ({p.dtype}): the constraint is defined for real weights; {_WAY_OUT}")
    if p.layout != torch.strided:
        raise TypeError(f"{label} is sparse ({p.layout}): the constraint needs a dense weight; {_WAY_OUT}")
    if p.requires_grad and not p.is_floating_point():
        raise TypeError(f"{label} is {p.dtype}: the constraint needs a floating point weight; {_WAY_OUT}")
    if isinstance(blocks, bool) or not isinstance(blocks, int) or blocks < 1 or p.shape[0] % blocks:
        raise ValueError(
            f"{label} of shape {tuple(p.shape)} cannot be cut into blocks={blocks!r} along its first dimension"
        )


# Parameters that other libraries shard in their own ways, by the mark that each leaves on them.
_FOREIGN: Final[dict[str, Callable[[Any], bool]]] = {
    "a parameter of FSDP1 (FullyShardedDataParallel)": lambda p: (
        getattr(p, "_fsdp_flattened", False) or type(p).__name__ == "FlatParameter"
    ),
    "a ShardedTensor": lambda p: type(p).__name__ == "ShardedTensor",
    "a parameter of DeepSpeed ZeRO-3": lambda p: hasattr(p, "ds_tensor"),
}


def refuse_gradient(group: dict[str, Any], weight: Tensor) -> NoReturn:
    """The complaint about a gradient that is not dense."""
    assert weight.grad is not None
    name = next(name for name, p in constrained(group) if p is weight)
    raise TypeError(
        f"parameter {name!r} has a sparse gradient ({weight.grad.layout}) under a constraint, which moves every row: "
        "put it in a param group of its own with constraint=0, or make its gradient dense"
    )


def refuse_overflow(group: dict[str, Any], index: int, weights: list[Weight]) -> None:
    """Of gradients that still have GradScaler's factor, which fused optimizers divide by themselves. A coupled penalty gets
    it too, and would leave the range of float16 after GradScaler has looked for inf."""
    half = next((p for _, p in weights if p.grad is not None and p.grad.dtype is torch.float16), None)
    if half is None or group["decoupled"]:
        return
    name = next(name for name, p in constrained(group) if p is half)
    raise TypeError(
        f"parameter {name!r} of param group {index} has a float16 gradient with GradScaler's factor in it, in which a "
        "coupled penalty overflows once GradScaler has raised it: use decoupled=True, or keep "
        "the weight in float32 (with torch.autocast) or bfloat16"
    )


def warn(group: dict[str, Any], index: int, stacklevel: int) -> None:
    """Name, with the numbers, the settings that will not do what was hoped for."""
    weights = constrained(group)
    if not weights:
        return
    spec = PenaltySpec.of(group)
    if spec.scale == "adaptive":
        tall = [name for name, p in weights if p.shape[0] > spec.blocks * math.prod(p.shape[1:])]
        if tall and spec.mode.endswith("full"):
            warnings.warn(
                f"param group {index}: scale='adaptive' aims at the mean norm of the rows, which makes a weight with more "
                f"rows than columns ({tall[0]!r}) shrink to zero. Give a number instead.",
                stacklevel=stacklevel,
            )
    else:
        _warn_of_decay(spec, spec.target, float(group.get("weight_decay") or 0.0), index, stacklevel + 1)
    lr = group.get("lr")
    if isinstance(lr, Tensor):
        lr = 0.0 if is_fake(lr) else lr.detach().item()
    dampening = float(group.get("dampening") or 0.0) if spec.momentum else 0.0
    _warn_of_overshoot(spec, float(lr or 0.0), dampening, index, stacklevel + 1)


def warn_of_shapes(groups: list[dict[str, Any]], optimizer: str, stacklevel: int) -> bool:
    """Of plain parameters, name those that are hardly the matrix of one layer: tokens and tables (1 × … × …), which are left
    out, and depthwise convolutions (C × 1 × k × k), which are not: a single one may be a convolution on grey images. Returns
    whether there are any."""
    plain = [pair for group in groups if group["constraint"] and not group["layers_known"] for pair in named(group)]
    lookups = [(name, p) for name, p in plain if p.ndim >= 2 and is_lookup(name, p)]
    depthwise = [(name, p) for name, p in plain if p.ndim == 4 and p.shape[0] > 1 and p.shape[1] == 1]
    complaints = []
    if lookups:
        complaints.append(f"{_listed(lookups)} cannot be the matrix of a layer and is left unconstrained")
    if len(depthwise) > 1:
        complaints.append(
            f"{_listed(depthwise)} looks like a depthwise convolution, a map for each channel, and is pulled as one"
        )
    if not complaints:
        return False
    warnings.warn(
        f"{'; '.join(complaints)}. Of plain parameters {optimizer} knows the shapes only: {optimizer}(model, …) looks at the "
        "layers, and also leaves out embeddings and the classifier. Through timm: param_group_fn=bort.param_groups.",
        stacklevel=stacklevel,
    )
    return True


def _listed(weights: list[tuple[str, Tensor]]) -> str:
    (name, p), *others = weights
    return f"{name!r} ({'×'.join(map(str, p.shape))})" + (f", like {len(others)} more," if others else "")


def warn_of_nothing(
    groups: list[dict[str, Any]], constraint: float, optimizer: str, model: object, stacklevel: int
) -> None:
    """An optimizer that was to have a constraint, and has no weight for it."""
    if any(constrained(group) for group in groups):
        return
    if isinstance(model, nn.Module):
        wanted = bool(constraint)
        reason = (
            f"{type(model).__name__} has no linear map that is trained, apart from its classifier; "
            "print(bort.param_groups(model)) gives a reason for each parameter."
        )
    else:
        count = sum(len(group["params"]) for group in groups if group["constraint"])
        wanted = count > 0
        reason = f"none of its {count} parameters with constraint > 0 is the matrix of a layer."
    if wanted:
        warnings.warn(f"{optimizer} has nothing to constrain: {reason}", stacklevel=stacklevel)


def _warn_of_decay(spec: PenaltySpec, scale: float, decay: float, index: int, stacklevel: int) -> None:
    constraint = spec.constraint
    if decay >= constraint * (1 if spec.mode.startswith("l1") else scale):
        warnings.warn(
            f"param group {index}: weight decay {decay:g} ≥ constraint {constraint:g}: where both act on the weight alike "
            f"they balance at σ² = {scale:g} − {decay:g}/{constraint:g} = {scale - decay / constraint:.3g} ≤ 0, so it goes "
            "to zero. Lower weight_decay or raise constraint.",
            stacklevel=stacklevel,
        )


def _warn_of_overshoot(spec: PenaltySpec, lr: float, dampening: float, index: int, stacklevel: int) -> None:
    scale = 1.0 if spec.scale == "adaptive" else spec.target
    slow = 1 - spec.momentum
    step = lr * spec.constraint * spec.every * scale
    symbols, numbers = "lr·λ", f"{lr:g}·{spec.constraint:g}"
    if spec.every > 1:
        symbols, numbers = f"{symbols}·every", f"{numbers}·{spec.every}"
    if scale != 1:
        symbols, numbers = f"{symbols}·scale", f"{numbers}·{scale:g}"
    if step >= slow:  # also with dampening: the first gradient enters the momentum whole
        warnings.warn(
            f"param group {index}: {symbols}/(1 − momentum) = {numbers}/{slow:.3g} = {step / slow:.3g} ≥ 1: the penalty "
            "overshoots its target, and far from it the stability guard has to shorten it. Lower constraint or lr.",
            stacklevel=stacklevel,
        )
        return
    if dampening:
        symbols, numbers = f"{symbols}·(1 − dampening)", f"{numbers}·{1 - dampening:g}"
        step *= 1 - dampening
    if step >= _SWING * slow**2:
        warnings.warn(
            f"param group {index}: {symbols}/(1 − momentum)² = {numbers}/{slow:.3g}² = {step / slow**2:.3g} ≥ {_SWING}: "
            f"the momentum {spec.momentum:g} carries σ past its target and back for about {2 / slow:.0f} steps, a weight "
            "that starts far from the constraint as far on its other side. Lower constraint, lr or momentum.",
            stacklevel=stacklevel,
        )
