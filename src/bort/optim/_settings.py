"""What a param group says about its constraint, checked once, with the group or parameter named in every complaint."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor

from bort.penalty import MODES

SETTINGS: Final = ("constraint", "decoupled", "every", "scale", "mode", "precision")
PRECISIONS: Final = ("highest", "high", "medium")

# Where the matrix sits in the tensor. `param_groups` fills these in from the modules; plain parameters need neither.
LAYOUT: Final[dict[str, Any]] = {"blocks": 1, "transposed": False}


def constrained(group: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """The (name, weight) pairs that the group's constraint applies to: two or more dimensions, and λ not 0."""
    if group["constraint"] == 0:
        return
    names = group.get("param_names")
    for index, p in enumerate(group["params"]):
        if p.ndim >= 2 and p.numel():
            yield names[index] if names else str(index), p


def check(group: dict[str, Any], index: int) -> None:
    """Refuse settings that mean nothing (ValueError, TypeError) before the first step."""
    where = f"param group {index}"
    constraint = group["constraint"]
    if isinstance(constraint, bool) or not isinstance(constraint, (int, float)) or not 0 <= constraint < math.inf:
        raise ValueError(
            f"constraint={constraint!r} in {where}: λ must be a finite number ≥ 0 (0 switches the constraint off)"
        )
    if not isinstance(group["decoupled"], bool):
        raise ValueError(f"decoupled={group['decoupled']!r} in {where}: must be True or False")
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
    if group["decoupled"] and constraint and "lr" not in group:
        raise ValueError(
            f"decoupled=True in {where}: this optimizer has no lr to scale the penalty; use decoupled=False"
        )
    for name, p in constrained(group):
        _check_weight(p, f"parameter {name!r} of {where}", group["blocks"])


def _check_weight(p: Tensor, who: str, blocks: int) -> None:
    way_out = "put it in a param group of its own with constraint=0"
    if p.is_complex():
        raise TypeError(f"{who} is complex ({p.dtype}): the constraint is defined for real weights; {way_out}")
    if p.layout != torch.strided:
        raise TypeError(f"{who} is sparse ({p.layout}): the constraint needs a dense weight; {way_out}")
    if not p.is_floating_point():
        raise TypeError(f"{who} is {p.dtype}: the constraint needs a floating point weight; {way_out}")
    if _is_sharded(p):
        raise TypeError(f"{who} is a DTensor: its local shard is not the matrix; {way_out}")
    if isinstance(blocks, bool) or not isinstance(blocks, int) or blocks < 1 or p.shape[0] % blocks:
        raise ValueError(
            f"{who} of shape {tuple(p.shape)} cannot be cut into blocks={blocks!r} along its first dimension"
        )


def _is_sharded(p: Tensor) -> bool:
    # By name: importing torch.distributed.tensor takes a second that a single process need not pay.
    return any(cls.__name__ == "DTensor" for cls in type(p).__mro__)


def check_gradient(grad: Tensor, name: str) -> None:
    if grad.layout != torch.strided:
        raise TypeError(
            f"parameter {name!r} has a sparse gradient ({grad.layout}) under a constraint, which moves every row: "
            "put it in a param group of its own with constraint=0, or make its gradient dense"
        )


def warn(group: dict[str, Any], index: int, stacklevel: int) -> None:
    """Say, with the numbers, which settings will not do what was hoped for."""
    constraint, lr, momentum = group["constraint"], float(group.get("lr", 0.0)), momentum_of(group)
    if not any(True for _ in constrained(group)):
        return
    decay = group.get("weight_decay", 0.0)
    if group["scale"] != "adaptive" and decay and decay >= constraint * group["scale"]:
        warnings.warn(
            f"param group {index}: weight decay {decay:g} ≥ constraint {constraint:g}: the two balance at σ² = "
            f"{group['scale']:g} − {decay:g}/{constraint:g} = {group['scale'] - decay / constraint:.3g} ≤ 0, "
            "so these weights go to zero. Lower weight_decay or raise constraint.",
            stacklevel=stacklevel,
        )
    rate = lr * constraint * group["every"] / (1 - momentum)
    if rate >= 1:
        factors = f"{lr:g}·{constraint:g}" + (f"·{group['every']}" if group["every"] > 1 else "")
        warnings.warn(
            f"param group {index}: lr·λ{'·every' if group['every'] > 1 else ''}/(1 − momentum) = "
            f"{factors}/(1 − {momentum:g}) = {rate:.3g} ≥ 1: the penalty overshoots and only the stability guard holds it. "
            "Lower constraint or lr.",
            stacklevel=stacklevel,
        )


def momentum_of(group: dict[str, Any]) -> float:
    """μ that a coupled penalty goes through; 0 for a decoupled one, which is applied to the weight itself."""
    if group["decoupled"]:
        return 0.0
    return min(float(group.get("momentum") or 0.0), 0.999)
