"""Feature maps as (N, channels, height, width), however a model lays them out: channels first, channels last, or tokens."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bort._inspect import spellings, uncompiled_name, unwrapped


@dataclass(frozen=True)
class Grid:
    """The layout of a layer's features, and the conversion to maps and back."""

    layout: Literal["channels first", "channels last", "tokens"]
    shape: tuple[int, int, int]
    """channels, height, width"""
    prefix: int = 0
    """Tokens in front that have no place in the image: class, distillation, registers."""

    def to_map(self, features: Tensor) -> Tensor:
        """(…, C, H, W) from features in the layer's layout."""
        if self.layout == "channels first":
            return features
        if self.layout == "channels last":
            return features.movedim(-1, -3)
        tokens = features[..., self.prefix :, :]
        return tokens.reshape(*tokens.shape[:-2], *self.shape[1:], tokens.shape[-1]).movedim(-1, -3)

    def from_map(self, maps: Tensor) -> Tensor:
        """Features in the layer's layout from (…, C, H, W); tokens without a place are 0."""
        if self.layout == "channels first":
            return maps
        if self.layout == "channels last":
            return maps.movedim(-3, -1)
        tokens = maps.movedim(-3, -1).flatten(-3, -2)
        prefix = tokens.new_zeros(*tokens.shape[:-2], self.prefix, tokens.shape[-1])
        return torch.cat([prefix, tokens], dim=-2)


_MOST_PREFIX = 5  # tokens without a place: class, distillation, up to four registers


def grid_of(model: nn.Module, layer: str, features: Tensor, inputs: Tensor | None = None) -> Grid:
    """The layout of a layer's features. ValueError if they are no map, as those of a linear head.

    Tokens are laid out as the patches of the ``inputs`` (N, channels, height, width) are, if they are given and their number
    fits; else as the model says (timm), or as a square.
    """
    model = unwrapped(model)
    if features.ndim == 4:
        if _channels_last(model, layer, features):
            return Grid("channels last", (features.shape[3], features.shape[1], features.shape[2]))
        return Grid("channels first", (features.shape[1], features.shape[2], features.shape[3]))
    if features.ndim == 3:
        count, channels = features.shape[1:]
        for height, width, most in _patch_grids(model, inputs):
            if 0 <= count - height * width <= most:
                return Grid("tokens", (channels, height, width), count - height * width)
        size: Any = getattr(getattr(model, "patch_embed", None), "grid_size", None)  # as timm's transformers have it
        prefix = getattr(model, "num_prefix_tokens", None)
        if size and prefix is not None and size[0] * size[1] + prefix == count:
            return Grid("tokens", (channels, int(size[0]), int(size[1])), int(prefix))
        for extra in range(1 + _MOST_PREFIX):  # otherwise a square of tokens behind the fewest without a place
            side = math.isqrt(count - extra) if count > extra else 0
            if side and side * side == count - extra:
                return Grid("tokens", (channels, side, side), extra)
    raise ValueError(
        f"the layer {layer!r} has features of shape {tuple(features.shape)}: that is no map with places in the image. "
        "Choose a convolution or a block of tokens"
    )


def _patch_grids(model: nn.Module, inputs: Tensor | None) -> Iterator[tuple[int, int, int]]:
    """Height and width of the grid of patches that a transformer cuts these images into, then of grids half as large, as
    hierarchical transformers merge them; and how many tokens may stand before such a grid."""
    if inputs is None or inputs.ndim != 4:
        return
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.kernel_size == module.stride != (1, 1):
            height, width = (side // step for side, step in zip(inputs.shape[-2:], module.stride, strict=True))
            most = _MOST_PREFIX
            while height * width > 1:
                yield height, width, most
                height, width, most = math.ceil(height / 2), math.ceil(width / 2), 0
            return


def _channels_last(model: nn.Module, layer: str, features: Tensor) -> bool:
    """By the kind of the layer; if any kind may be it, by which two dimensions are the sides of a square; if that does not
    decide either, by the ``output_fmt`` of timm's models (Swin and others have NHWC)."""
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
    """The module of that name, with or without what torch.compile and DataParallel put before it. For a name that does not
    exist the error suggests similar ones."""
    inner = unwrapped(model)
    modules: dict[str, nn.Module] = {uncompiled_name(key): module for key, module in inner.named_modules()}
    for spelling in spellings(name):
        if spelling and spelling in modules:
            return modules[spelling]
    names = [key for key in modules if key]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[-3:]
    raise ValueError(f"{type(model).__name__} has no layer {name!r}; there are {', '.join(map(repr, near))} and others")
