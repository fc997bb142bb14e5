"""Which layers of a model have feature maps, and which of them the methods look at if none is named."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache

import torch
from torch import Tensor, nn

from bort._inspect import evaluating, outputs_of, uncompiled_name, unwrapped
from bort._layouts import known_maps
from bort.invert import Grid, grid_of


def map_layers(model: nn.Module, x: Tensor) -> dict[str, Grid]:
    """The names of all layers and blocks whose output is a map with more than one place, in the order in which they run, and
    how each map is laid out: ``map_layers(model, x)[name].shape`` is (channels, height, width).

    Example:
        >>> found = explain.map_layers(nets.create("lenet"), torch.rand(1, 1, 28, 28))
        >>> {name: grid.shape for name, grid in found.items()}
        {'conv1': (6, 28, 28), 'conv2': (16, 10, 10)}
    """
    maps, _ = _maps(model, x)
    return {name: grid for name, _, grid in maps}


def top_layer(model: nn.Module, x: Tensor, *, deciding: bool = False) -> str:
    """The last layer or block that has a map: the paper's Z. With ``deciding`` the last one whose places have a part in the
    predicted logit: after the last attention of a ViT only the class token does.

    Example:
        >>> explain.top_layer(nets.create("acnn-small", width=0.05), torch.rand(1, 1, 28, 28))
        'conv5'
    """
    maps, logits = _maps(model, x)
    if not maps:
        raise ValueError(
            f"{type(model).__name__} has no layer with a feature map: name one with layer=, or use a method that "
            "needs none (Integrated Gradients, Guided IG, RISE, XRAI)"
        )
    if deciding and logits.requires_grad:
        with torch.inference_mode(False), torch.enable_grad():
            highest = logits[0].max()
        slopes = torch.autograd.grad(highest, [output for _, output, _ in maps], allow_unused=True)
        for (name, _, grid), slope in zip(reversed(maps), reversed(slopes), strict=True):
            if slope is not None and grid.to_map(slope).any():
                return name
    return maps[-1][0]


def _maps(model: nn.Module, x: Tensor) -> tuple[list[tuple[str, Tensor, Grid]], Tensor]:
    """Name, output and layout of every layer with a map, and the logits, with autograd's graph. The pass is of the first
    image, twice: what has another first dimension is a table, or windows of attention in the place of images."""
    outputs: list[tuple[str, Tensor]] = []

    def record(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and output.requires_grad and output.ndim > 2 and output.shape[0] == 2:
                outputs.append((name, output))

        return hook

    layers = {uncompiled_name(name): m for name, m in unwrapped(model).named_modules() if name and _is_layer(m)}
    hooks = [m.register_forward_hook(record(name)) for name, m in layers.items()]
    try:
        with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
            logits = outputs_of(model, x[:1].detach().clone().repeat(2, *[1] * (x.ndim - 1)).requires_grad_())
    finally:
        for hook in hooks:
            hook.remove()
    known = cache(lambda: known_maps(model, x))
    maps = []
    for name, output in outputs:
        with suppress(ValueError):
            grid = grid_of(model, name, output, x, known=known)
            if grid.shape[1] * grid.shape[2] > 1:
                maps.append((name, output, grid))
    return maps, logits


def _is_layer(module: nn.Module) -> bool:
    """Convolutions, norms, and blocks of other modules. Single linear layers are left out: in attention their outputs are
    queries, keys and values, not maps."""
    kinds = (nn.Conv2d, nn.LayerNorm, nn.BatchNorm2d, nn.GroupNorm)
    return isinstance(module, kinds) or any(True for _ in module.children())
