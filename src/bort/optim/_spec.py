"""What a param group asks of the penalty, read once a step and then handed around as one frozen value."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from bort import penalty

Weight: TypeAlias = tuple[int, Tensor]
"""A weight and its slot: its position among the constrained weights of its group, where its residual is kept."""

Scale: TypeAlias = penalty.Scale | Literal["initial"]

Moves: TypeAlias = tuple[list[Weight], Tensor | list[Tensor], Tensor]
"""Weights, their guarded directions W WᵀW − s·W in the weights' own shapes (or, of weights of one shape, in one tensor), and
their residuals (weights,)."""

# What libraries of networks call parameters of a module that are added to something or looked up.
_LOOKUPS = frozenset(
    (
        *("cls_token", "class_token", "dist_token", "mask_token", "reg_token", "register_tokens"),
        *("pos_embed", "pos_embedding", "position_embedding", "positional_embedding", "relative_position_bias_table"),
    )
)

# Momentum is taken to be at most this: the limits contain 1/(1 − μ), which has to stay finite.
_LARGEST_MOMENTUM = 0.999


@dataclass(frozen=True, slots=True)
class PenaltySpec:
    """The settings of one param group that the penalty depends on; :func:`bort.bortify` explains those of the user."""

    constraint: float
    decoupled: bool = False
    every: int = 1
    scale: Scale = 1.0
    mode: penalty.Mode = "full"
    precision: str = "high"
    blocks: int = 1
    transposed: bool = False
    shard: bool = False
    maximize: bool = False
    """The base optimizer climbs the loss, and the penalty must not be climbed with it."""
    momentum: float = 0.0
    """μ that a coupled penalty passes through; 0 for a decoupled one, which is applied to the weight itself."""
    nesterov: bool = False
    schedule_free: bool = False
    """The base optimizer keeps a second copy z of each weight, which has to be moved as well."""
    warm: float | Tensor = 1.0
    """The part of λ that a warm-up has reached, from 0 to 1; a tensor on a GPU, where a CUDA graph may be captured."""
    scales: Tensor | None = None
    """With scale="initial": s of each block of each weight, (slots, blocks); see `_initial_scales`."""

    @classmethod
    def of(cls, group: dict[str, Any], warm: float | Tensor = 1.0, scales: Tensor | None = None) -> PenaltySpec:
        decoupled = group["decoupled"]
        momentum = 0.0 if decoupled else min(float(group.get("momentum") or 0.0), _LARGEST_MOMENTUM)
        return cls(  # by position, since this runs at every step: keywords take longer than the rest
            group["constraint"],
            decoupled,
            group["every"],
            group["scale"],
            group["mode"],
            group["precision"],
            group["blocks"],
            group["transposed"],
            group["shard"],
            bool(group.get("maximize")),
            momentum,
            bool(group.get("nesterov")),
            "train_mode" in group,
            warm,
            scales,
        )

    @property
    def strength(self) -> float:
        """λ of one penalty: that of all the steps since the last one, as far as a warm-up has come if that is a number."""
        strength = self.constraint * self.every
        return strength if isinstance(self.warm, Tensor) else strength * self.warm

    @property
    def strength_tensor(self) -> Tensor | None:
        """What ``strength`` has to be multiplied with on the device."""
        return self.warm if isinstance(self.warm, Tensor) else None

    @property
    def target(self) -> float:
        """s of WᵀW = s·I as a number: 1 if it is "initial", since the Gram matrices are then divided by s."""
        assert self.scale != "adaptive"
        return 1.0 if self.scale == "initial" else self.scale

    def scales_of(self, slots: Sequence[int]) -> Tensor | None:
        """``scales`` of some weights, in this order."""
        return None if self.scales is None else torch.stack([self.scales[slot] for slot in slots])

    @property
    def needs_whole_matrix(self) -> bool:
        """Whether the direction cannot be computed from pieces of the matrix and sums over them."""
        return self.mode != "full" or self.scale == "adaptive" or self.blocks != 1


def constrained(group: dict[str, Any]) -> list[tuple[str, Tensor]]:
    """The (name, weight) pairs that the group's constraint applies to, in the order of their slots."""
    return [(name, p) for name, p in named(group) if is_matrix(group, name, p)] if group["constraint"] else []


def named(group: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a group, with their numbers for names if they have none."""
    params = group["params"]
    return zip(group.get("param_names") or map(str, range(len(params))), params, strict=True)


def is_matrix(group: dict[str, Any], name: str, p: Tensor) -> bool:
    """Whether a parameter of the group has a matrix to constrain: two or more dimensions, none of them empty, and, where
    nobody has looked at the layers, neither the shape nor the name of a token or a table."""
    return p.ndim >= 2 and p.numel() > 0 and (group["layers_known"] or not is_lookup(name, p))


def is_lookup(name: str, p: Tensor) -> bool:
    """Whether a parameter is a token or a table, which no input is multiplied with, as far as its shape (1 × … × …) and its
    name tell. (Tables that are embeddings, or of two dimensions and without a name, look like linear layers.)"""
    return (p.ndim >= 3 and p.shape[0] == 1) or name.rpartition(".")[2] in _LOOKUPS


def is_fake(tensor: Tensor) -> bool:
    """Whether a tensor has a shape but no numbers: on the meta device, or one of torch's FakeTensorMode."""
    return tensor.is_meta or _is_fake_class(type(tensor))


@functools.cache
def _is_fake_class(cls: type) -> bool:
    return any(base.__name__ == "FakeTensor" for base in cls.__mro__)  # by name: its module takes a second to import
