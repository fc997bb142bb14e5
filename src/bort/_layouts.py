"""Where the channels of a feature map (N, …, …, …) are: before its places, as in convolutions, or behind them.

The shape alone does not say: (2, 8, 8, 16) may be 8 channels of 8 × 16 places, or 16 of 8 × 8. The kind of the layer says it,
or that of another one which takes or gives the same tensor, or that of any layer with a map of the same size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd

from bort._inspect import evaluating, run, uncompiled_name, unwrapped

Layout = Literal["channels first", "channels last"]

_CHANNELS_FIRST: Final = (
    *(_ConvNd, _NormBase, nn.GroupNorm),
    *(_MaxPoolNd, _AvgPoolNd, _AdaptiveMaxPoolNd, _AdaptiveAvgPoolNd),
)


def by_kind(module: nn.Module, shape: torch.Size) -> Layout | None:
    """Of a layer that takes and gives maps in one layout only, with an output of this shape; None of all others."""
    if isinstance(module, _CHANNELS_FIRST):
        return "channels first"
    if isinstance(module, nn.Linear):
        return "channels last"
    name = type(module).__name__
    if "Norm" in name and "2d" in name:  # timm's and torchvision's LayerNorm2d and others
        return "channels first"
    if not isinstance(module, nn.LayerNorm) or len(module.normalized_shape) != 1:
        return None
    if type(module) is not nn.LayerNorm:  # may bring the channels to the end and back
        named = getattr(module, "data_format", None)  # as transformers has it
        if named in ("channels_first", "channels_last"):
            return "channels first" if named == "channels_first" else "channels last"
        if shape[-1] != module.normalized_shape[0]:
            return "channels first"
    return "channels last"


@dataclass(frozen=True)
class KnownMaps:
    """What a pass has shown of a model's maps."""

    layouts: dict[str, Layout]
    """Of layers and blocks whose output is the tensor that a layer of known kind takes or gives; and of blocks that take such
    a tensor and give one of its shape."""
    shapes: frozenset[tuple[int, int, int]]
    """(channels, height, width) of the outputs of layers of known kind."""
    sizes: frozenset[tuple[int, int]]
    """(height, width) of the outputs of convolutions, norms and pools with channels first."""

    def layout(self, layer: str, shape: torch.Size) -> Layout | None:
        """Of a layer's output of this shape; None if the pass does not tell."""
        if layer in self.layouts:
            return self.layouts[layer]
        one, two, three = shape[1:]
        for seen, first, last in (
            (self.shapes, (one, two, three), (three, one, two)),
            (self.sizes, (two, three), (one, two)),
        ):
            if (first in seen) != (last in seen):
                return "channels first" if first in seen else "channels last"
        return None


@torch.no_grad()
def known_maps(model: nn.Module, images: Tensor) -> KnownMaps:
    """From a pass of the first image, twice: what has another first dimension than 2 is not of images."""
    names = {module: uncompiled_name(name) for name, module in unwrapped(model).named_modules()}
    calls: list[tuple[nn.Module, Tensor, Tensor | None]] = []  # with output and input, of everything that gives a map
    known: dict[int, Layout] = {}  # by the address of a tensor, which `calls` keeps
    shapes, sizes = set(), set()

    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        given = output[0] if isinstance(output, (tuple, list)) and output else output
        if not _is_map(given):
            return
        taken = inputs[0] if inputs and _is_map(inputs[0]) else None
        calls.append((module, given, taken))
        layout = by_kind(module, given.shape)
        if layout is None:
            return
        known.update((id(tensor), layout) for tensor in (taken, given) if tensor is not None)
        if layout == "channels first":
            shapes.add((given.shape[1], given.shape[2], given.shape[3]))
            sizes.add((given.shape[2], given.shape[3]))
        else:
            shapes.add((given.shape[3], given.shape[1], given.shape[2]))

    handles = [module.register_forward_hook(hook) for module in names]
    try:
        with evaluating(model):
            run(model, images[:1].detach().expand(2, *images.shape[1:]))
    finally:
        for handle in handles:
            handle.remove()
    layouts: dict[str, Layout] = {}
    for module, given, taken in calls:
        layout = known.get(id(given))
        if layout is None and taken is not None and taken.shape == given.shape and any(True for _ in module.children()):
            layout = known.get(id(taken))  # a block gives what it takes, which a single permutation does not
        if layout is not None:
            layouts[names[module]] = known[id(given)] = layout
    return KnownMaps(layouts, frozenset(shapes), frozenset(sizes))


def _is_map(value: object) -> bool:
    return isinstance(value, Tensor) and value.ndim == 4 and value.shape[0] == 2
