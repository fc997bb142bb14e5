"""Feature maps as (N, channels, height, width), however a model lays them out: channels first, channels last, or tokens.
Those of one-dimensional convolutions, (N, channels, length), are maps of one row."""

from __future__ import annotations

import contextlib
import difflib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bort._inspect import spellings, uncompiled_name, unwrapped
from bort._layouts import KnownMaps, by_kind, known_maps


@dataclass(frozen=True)
class Grid:
    """The layout of a layer's features, and the conversion to maps and back.

    Example:
        >>> grid = invert.Grid("tokens", (8, 2, 3), prefix=1)
        >>> maps = grid.to_map(torch.rand(5, 7, 8))  # a class token and 2 · 3 others
        >>> maps.shape, grid.from_map(maps).shape
        (torch.Size([5, 8, 2, 3]), torch.Size([5, 7, 8]))
    """

    layout: Literal["channels first", "channels last", "tokens", "one row"]
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
        if self.layout == "one row":
            return features.unsqueeze(-2)
        tokens = features[..., self.prefix :, :]
        return tokens.reshape(*tokens.shape[:-2], *self.shape[1:], tokens.shape[-1]).movedim(-1, -3)

    def from_map(self, maps: Tensor) -> Tensor:
        """Features in the layer's layout from (…, C, H, W); tokens without a place are 0."""
        if self.layout == "channels first":
            return maps
        if self.layout == "channels last":
            return maps.movedim(-3, -1)
        if self.layout == "one row":
            return maps.squeeze(-2)
        tokens = maps.movedim(-3, -1).flatten(-3, -2)
        prefix = tokens.new_zeros(*tokens.shape[:-2], self.prefix, tokens.shape[-1])
        return torch.cat([prefix, tokens], dim=-2)


_MOST_PREFIX = 5  # tokens without a place: class, distillation, up to four registers
_REORDERED = ("Hiera", "HieraModel", "Nest")  # their tokens are sorted by windows, which no shape tells


def grid_of(
    model: nn.Module,
    layer: str,
    features: Tensor,
    inputs: Tensor | None = None,
    *,
    known: Callable[[], KnownMaps] | None = None,
) -> Grid:
    """The layout of a layer's features. ValueError if they are no map, as those of a linear head.

    Channels come first or last as in all layers of the kind, else as a pass of the ``inputs`` (N, channels, height, width)
    shows. Tokens are laid out as the patches of the inputs are, if they are given and the number fits; else as the model says
    (timm), in the proportions of the inputs, or as a square. ``known`` gives what a pass of the inputs has shown, where one
    pass is enough for many layers.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(1, 1, 28, 28)
        >>> features = invert.Backtracker(model, "conv2").features(x)
        >>> invert.grid_of(model, "conv2", features, x)
        Grid(layout='channels first', shape=(16, 10, 10), prefix=0)
    """
    model = unwrapped(model)
    image = None if inputs is None or inputs.ndim != 4 else (inputs.shape[-2], inputs.shape[-1])
    if known is None and inputs is not None and image is not None:
        known = cache(lambda: known_maps(model, inputs))
    grid = None
    if features.ndim == 4:
        grid = _of_map(model, layer, features.shape, image, known)
    elif features.ndim == 3:
        grid = _of_rows(model, layer, features.shape, inputs, image, known)
    if grid is None:
        raise ValueError(
            f"the layer {layer!r} has features of shape {tuple(features.shape)}: that is no map with places in the image. "
            "Choose a convolution, the norm behind it, or a block of tokens"
        )
    if grid.layout != "channels first" and any(type(module).__name__ in _REORDERED for module in model.modules()):
        raise ValueError(
            f"the layer {layer!r} has tokens in the order of {type(model).__name__}'s windows: that is no map with places in "
            "the image. Choose a convolution"
        )
    return grid


def _of_map(
    model: nn.Module,
    layer: str,
    shape: torch.Size,
    image: tuple[int, int] | None,
    known: Callable[[], KnownMaps] | None,
) -> Grid | None:
    one, two, three = shape[1:]
    layout = by_kind(find_layer(model, layer), shape)
    if layout is None and (image is None or image[0] == image[1]) and (one == two) != (two == three):
        layout = "channels last" if one == two else "channels first"  # the two sides of a square
    if layout is None and known is not None:
        layout = known().layout(layer, shape)
    if layout is None:  # timm's Swin and others have NHWC
        layout = "channels last" if getattr(model, "output_fmt", "NCHW") == "NHWC" else "channels first"
    if layout == "channels first":
        return Grid(layout, (one, two, three))
    # A norm of each head's queries has (N, heads, tokens, channels).
    is_place = image is None or known is None or _in_proportion(one, two, image) or (one, two) in known().sizes
    return Grid(layout, (three, one, two)) if is_place else None


def _in_proportion(height: int, width: int, image: tuple[int, int]) -> bool:
    """Whether a grid has the image's proportions, to within a row or a column."""
    return abs(height * image[1] - width * image[0]) <= max(image)


def _of_rows(
    model: nn.Module,
    layer: str,
    shape: torch.Size,
    inputs: Tensor | None,
    image: tuple[int, int] | None,
    known: Callable[[], KnownMaps] | None,
) -> Grid | None:
    """Of (N, channels, length) or (N, tokens, channels)."""
    layout = by_kind(find_layer(model, layer), shape)
    if layout == "channels first":  # in a network on images they are rows of tokens, or of channels
        return Grid("one row", (shape[1], 1, shape[2])) if image is None else None
    of_signals = inputs is not None and inputs.ndim == 3 and any(isinstance(m, nn.Conv1d) for m in model.modules())
    if layout is None and of_signals:
        return None  # channels or places may come first, and their number may be that of a grid of tokens by chance
    return _of_tokens(model, shape, image, known)


def _of_tokens(
    model: nn.Module, shape: torch.Size, image: tuple[int, int] | None, known: Callable[[], KnownMaps] | None
) -> Grid | None:
    count, channels = shape[1:]
    patches = list(_patch_grids(model, image))
    for height, width, most in patches:
        if 0 <= count - height * width <= most:
            return Grid("tokens", (channels, height, width), count - height * width)
    if patches and channels == patches[0][0] * patches[0][1]:
        return None  # channels before tokens, as inside a Mixer
    size: Any = getattr(getattr(model, "patch_embed", None), "grid_size", None)  # as timm's transformers have it
    prefix = getattr(model, "num_prefix_tokens", None)
    if size and prefix is not None and size[0] * size[1] + prefix == count:
        return Grid("tokens", (channels, int(size[0]), int(size[1])), int(prefix))
    height, width = image or (1, 1)
    sizes = known().sizes if known is not None and height != width else frozenset()
    for extra in range(1 + _MOST_PREFIX):  # otherwise a grid in proportion behind the fewest tokens without a place
        rows = math.isqrt(max(0, count - extra) * height // width)
        columns = rows * width // height
        if rows and rows * columns == count - extra and rows * width == columns * height:
            return Grid("tokens", (channels, rows, columns), extra)
        for rows, columns in sorted(sizes):
            if rows * columns == count - extra:
                return Grid("tokens", (channels, rows, columns), extra)
    return None


def _patch_grids(model: nn.Module, image: tuple[int, int] | None) -> Iterator[tuple[int, int, int]]:
    """Height and width of the grid of patches that a transformer cuts an image into, then of grids half as large, as
    hierarchical transformers merge them; and how many tokens may stand before such a grid."""
    if image is None:
        return
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.kernel_size == module.stride != (1, 1):
            height, width = (side // step for side, step in zip(image, module.stride, strict=True))
            most = _MOST_PREFIX
            while height * width > 1:
                yield height, width, most
                height, width, most = math.ceil(height / 2), math.ceil(width / 2), 0
            return


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """The module of that name, with or without what torch.compile and DataParallel put before it. For a name that does not
    exist the error suggests similar ones."""
    inner = unwrapped(model)
    with contextlib.suppress(AttributeError):  # most names, and large networks have hundreds of others
        found = inner.get_submodule(name)
        if name and unwrapped(found) is found:
            return found
    modules: dict[str, nn.Module] = {uncompiled_name(key): module for key, module in inner.named_modules()}
    for spelling in spellings(name):
        if spelling and spelling in modules:
            return modules[spelling]
    names = [key for key in modules if key]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[-3:]
    raise ValueError(f"{type(model).__name__} has no layer {name!r}; there are {', '.join(map(repr, near))} and others")
