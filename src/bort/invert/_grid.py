"""Feature maps as (N, channels, height, width), however a model lays them out: channels first, channels last, or tokens."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Grid:
    """How the features of a layer are a map, and the way back."""

    layout: Literal["channels first", "channels last", "tokens"]
    shape: tuple[int, int, int]
    """channels, height, width"""
    prefix: int = 0
    """Tokens in front that have no place in the image: class, distillation, registers."""

    def to_map(self, features: Tensor) -> Tensor:
        """(…, C, H, W)"""
        if self.layout == "channels first":
            return features
        if self.layout == "channels last":
            return features.movedim(-1, -3)
        tokens = features[..., self.prefix :, :]
        return tokens.reshape(*tokens.shape[:-2], *self.shape[1:], tokens.shape[-1]).movedim(-1, -3)

    def from_map(self, maps: Tensor) -> Tensor:
        """As the layer has it; the tokens in front are 0."""
        if self.layout == "channels first":
            return maps
        if self.layout == "channels last":
            return maps.movedim(-3, -1)
        tokens = maps.movedim(-3, -1).flatten(-3, -2)
        front = tokens.new_zeros(*tokens.shape[:-2], self.prefix, tokens.shape[-1])
        return torch.cat([front, tokens], dim=-2)


def grid_of(model: nn.Module, layer: str, features: Tensor) -> Grid:
    """How the features of a layer lie. A layer without a map (a linear head) is refused."""
    if features.ndim == 4:
        if _channels_last(model, layer, features):
            return Grid("channels last", (features.shape[3], features.shape[1], features.shape[2]))
        return Grid("channels first", (features.shape[1], features.shape[2], features.shape[3]))
    if features.ndim == 3:
        count, channels = features.shape[1:]
        known: Any = getattr(getattr(model, "patch_embed", None), "grid_size", None)
        prefix = getattr(model, "num_prefix_tokens", None)
        if known and prefix is not None and known[0] * known[1] + prefix == count:
            return Grid("tokens", (channels, int(known[0]), int(known[1])), int(prefix))
        for extra in range(6):
            side = math.isqrt(count - extra) if count > extra else 0
            if side and side * side == count - extra:
                return Grid("tokens", (channels, side, side), extra)
    raise ValueError(
        f"the layer {layer!r} has features of shape {tuple(features.shape)}: that is no map with places in the image. "
        "Choose a convolution or a block of tokens"
    )


def _channels_last(model: nn.Module, layer: str, features: Tensor) -> bool:
    """By the kind of the layer; where that says nothing, by which two dimensions are the sides of a square; else by what
    timm's Swin and its kin say of themselves."""
    module = find_layer(model, layer)
    if isinstance(module, (nn.Linear, nn.LayerNorm)) and type(module).__name__ != "LayerNorm2d":
        return True
    if isinstance(module, (nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm, nn.GroupNorm)):
        return False
    first, second, third = features.shape[1:]
    if (first == second) != (second == third):
        return first == second
    return getattr(model, "output_fmt", "NCHW") == "NHWC"


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """The module of that name; near names are suggested for one that is not there."""
    modules: dict[str, nn.Module] = dict(model.named_modules())
    if name in modules and name:
        return modules[name]
    names = [key for key in modules if key]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[-3:]
    raise ValueError(f"{type(model).__name__} has no layer {name!r}; there are {', '.join(map(repr, near))} and others")
