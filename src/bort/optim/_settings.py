"""What a param group says about its constraint, checked once, with the group or parameter named in every complaint."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Final, NoReturn

import torch
from torch import Tensor

from bort.optim import _stability as _guard
from bort.optim.sharded import _layout
from bort.penalty import MODES

SETTINGS: Final = ("constraint", "decoupled", "every", "scale", "mode", "precision", "shard")
PRECISIONS: Final = ("highest", "high", "medium")

# Where the matrix sits in the tensor. `param_groups` fills these in from the modules; plain parameters need neither.
LAYOUT: Final[dict[str, Any]] = {"blocks": 1, "transposed": False}


def constrained(group: dict[str, Any]) -> list[tuple[str, Tensor]]:
    """The (name, weight) pairs that the group's constraint applies to: two or more dimensions, and λ not 0."""
    if group["constraint"] == 0:
        return []
    params = group["params"]
    names = group.get("param_names") or map(str, range(len(params)))
    return [(name, p) for name, p in zip(names, params, strict=True) if p.ndim >= 2 and p.numel()]


def judged(group: dict[str, Any], default_lr: float | Tensor | None) -> tuple[float | Tensor, _guard.Limits]:
    """What the stability guard judges a group's penalty by: a = α·λ of one penalty step, and the limits for it.

    Coupled to a momentum, the penalty of now still moves the weight when a warm-up has raised the learning rate: there α is
    the largest one that the group, its scheduler or the optimizer's defaults know of.
    """
    rate, strength = group.get("lr", 1.0), group["constraint"] * group["every"]
    momentum = momentum_of(group)
    if not momentum:
        return rate * strength, _guard.limits()
    for known in (group.get("initial_lr"), group.get("max_lr"), default_lr):
        if known is not None:
            rate = _larger(rate, known)
    carried = momentum ** group["every"]
    gain = (1 - carried) / (1 - momentum)
    return rate * strength * gain, _guard.limits(carried, nesterov=bool(group.get("nesterov")))


def _larger(first: float | Tensor, second: float | Tensor) -> float | Tensor:
    if isinstance(first, Tensor):
        return torch.maximum(first, second) if isinstance(second, Tensor) else first.clamp(min=second)
    return second.clamp(min=first) if isinstance(second, Tensor) else max(first, second)


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
    scale = group["scale"]
    if scale != "adaptive" and (
        isinstance(scale, (bool, str)) or not isinstance(scale, (int, float)) or not 0 < scale < math.inf
    ):
        raise ValueError(f'scale={scale!r} in {where}: must be a finite number > 0 or "adaptive"')
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
        names = group.get("param_names") or range(len(group["params"]))
        for name, p in zip(names, group["params"], strict=True):
            _check_kind(p, f"parameter {str(name)!r} of {where}")
    for name, p in constrained(group):
        _check_weight(p, f"parameter {name!r} of {where}", group["blocks"])


_WAY_OUT: Final = "put it in a param group of its own with constraint=0"


def _check_kind(p: Tensor, who: str) -> None:
    kind = next((kind for kind, is_one in _FOREIGN.items() if is_one(p)), None)
    if kind is not None:
        raise TypeError(f"{who} is {kind}, whose local piece is not a matrix; use fully_shard (FSDP2), or {_WAY_OUT}")
    reason = _layout.refuse(p) if p.ndim >= 2 and _layout.is_dtensor(p) else None
    if reason is not None:
        raise TypeError(f"{who} {reason}; {_WAY_OUT}")


def _check_weight(p: Tensor, who: str, blocks: int) -> None:
    if p.is_complex():
        raise TypeError(f"{who} is complex ({p.dtype}): the constraint is defined for real weights; {_WAY_OUT}")
    if p.layout != torch.strided:
        raise TypeError(f"{who} is sparse ({p.layout}): the constraint needs a dense weight; {_WAY_OUT}")
    if p.requires_grad and not p.is_floating_point():
        raise TypeError(f"{who} is {p.dtype}: the constraint needs a floating point weight; {_WAY_OUT}")
    if isinstance(blocks, bool) or not isinstance(blocks, int) or blocks < 1 or p.shape[0] % blocks:
        raise ValueError(
            f"{who} of shape {tuple(p.shape)} cannot be cut into blocks={blocks!r} along its first dimension"
        )


# Sharded in ways of their own: by what marks their parameters.
_FOREIGN: Final[dict[str, Callable[[Any], bool]]] = {
    "a parameter of FSDP1 (FullyShardedDataParallel)": lambda p: (
        getattr(p, "_fsdp_flattened", False) or type(p).__name__ == "FlatParameter"
    ),
    "a ShardedTensor": lambda p: type(p).__name__ == "ShardedTensor",
    "a parameter of DeepSpeed ZeRO-3": lambda p: hasattr(p, "ds_tensor"),
}


def refuse_gradient(grad: Tensor, name: str) -> NoReturn:
    raise TypeError(
        f"parameter {name!r} has a sparse gradient ({grad.layout}) under a constraint, which moves every row: "
        "put it in a param group of its own with constraint=0, or make its gradient dense"
    )


def warn(group: dict[str, Any], index: int, stacklevel: int) -> None:
    """Say, with the numbers, which settings will not do what was hoped for."""
    if not constrained(group):
        return
    constraint, scale, momentum = group["constraint"], group["scale"], momentum_of(group)
    decay = float(group.get("weight_decay") or 0.0)
    if scale == "adaptive":
        tall = [name for name, p in constrained(group) if p.shape[0] > group["blocks"] * math.prod(p.shape[1:])]
        if tall and group["mode"].endswith("full"):
            warnings.warn(
                f"param group {index}: scale='adaptive' aims at the mean norm of the rows, which makes a weight with more "
                f"rows than columns ({tall[0]!r}) shrink to zero. Give a number instead.",
                stacklevel=stacklevel,
            )
    elif decay >= constraint * (1 if group["mode"].startswith("l1") else scale):
        warnings.warn(
            f"param group {index}: weight decay {decay:g} ≥ constraint {constraint:g}: where both act on the weight alike "
            f"they balance at σ² = {scale:g} − {decay:g}/{constraint:g} = {scale - decay / constraint:.3g} ≤ 0, so it goes "
            "to zero. Lower weight_decay or raise constraint.",
            stacklevel=stacklevel,
        )
    lr = group.get("lr") or 0.0
    lr = lr.detach().item() if isinstance(lr, Tensor) else float(lr)
    rate = lr * constraint * group["every"] / (1 - momentum) * (1.0 if scale == "adaptive" else scale)
    if rate >= 1:
        factors = f"{lr:g}·{constraint:g}" + (f"·{group['every']}" if group["every"] > 1 else "")
        factors += f"·{scale:g}" if scale not in (1.0, "adaptive") else ""
        warnings.warn(
            f"param group {index}: lr·λ{'·every' if group['every'] > 1 else ''}"
            f"{'·scale' if scale not in (1.0, 'adaptive') else ''}/(1 − momentum) = "
            f"{factors}/(1 − {momentum:g}) = {rate:.3g} ≥ 1: the penalty overshoots its target, and far from it the "
            "stability guard has to shorten it. Lower constraint or lr.",
            stacklevel=stacklevel,
        )


def momentum_of(group: dict[str, Any]) -> float:
    """μ that a coupled penalty goes through; 0 for a decoupled one, which is applied to the weight itself."""
    if group["decoupled"]:
        return 0.0
    return min(float(group.get("momentum") or 0.0), 0.999)
