"""What all explanations share: checked input, a target class, and a layer if none is named."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bort._inspect import evaluating, outputs_of
from bort.invert._backtrack import check_input
from bort.invert._grid import grid_of
from bort.invert._rules import Rules

_LARGEST = 2**25  # numbers in the largest tensor of a pass without gradients: 128 MiB, of which a few live at a time
_KEPT = 2**28  # numbers in all tensors of a pass with gradients: 1 GiB

Target = Tensor | int | None
"""A class for each image, one for all, or None: what the model says."""


def check_images(model: nn.Module, x: Tensor) -> None:
    check_input(model, x)
    if x.ndim != 4:
        raise ValueError(f"images of shape {tuple(x.shape)}: give them as (N, channels, height, width)")


Progress = Callable[[int, int], None]
"""Called with (done, total) as a slow method goes on: in units of its own, never falling, and at last with done = total. To
cancel it, raise an exception there, :class:`Cancelled` for one."""


class Cancelled(Exception):
    """Raised by a ``progress`` function to end a method early. The model is left as it was."""


class Meter:
    """One scale of (done, total) for a method of several parts, one after the other, each with a scale of its own."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._begun = progress, total, 0

    def part(self, units: int) -> Progress | None:
        """For the next part, which is that much of the total."""
        whole, start = self._progress, self._begun
        self._begun += units
        if whole is None:
            return None
        return lambda done, total: whole(start + units * done // total, self._total)


def targets_of(outputs: Tensor, target: Target) -> Tensor:
    """(N,) classes, checked."""
    if outputs.ndim != 2:
        raise ValueError(f"the model gives outputs of shape {tuple(outputs.shape)}, not (N, classes)")
    count, classes = outputs.shape
    if target is None:
        return outputs.argmax(dim=1)
    chosen = torch.as_tensor(target, device=outputs.device)
    if chosen.is_floating_point() or chosen.shape not in ((), (count,)):
        raise ValueError(
            f"target of shape {tuple(chosen.shape)}: give one class, or one for each of the {count} images"
        )
    chosen = chosen.long().expand(count)
    if chosen.min() < 0 or chosen.max() >= classes:
        wrong = chosen[(chosen < 0) | (chosen >= classes)][0].item()
        raise ValueError(f"target={wrong}: the model has {classes} classes, 0 to {classes - 1}")
    return chosen


def map_layers(model: nn.Module, x: Tensor) -> tuple[list[tuple[str, Tensor]], Tensor]:
    """Every layer or block that has a map with more than one place, in order, with its output for the first image; and what
    the model says of that."""
    found: list[tuple[str, Tensor]] = []

    def look(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if not isinstance(output, Tensor) or output.shape[0] != 1:
                return  # no map, or windows of attention
            try:
                shape = grid_of(model, name, output).shape
            except ValueError:
                return
            if shape[1] * shape[2] > 1:
                found.append((name, output))

        return hook

    hooks = [m.register_forward_hook(look(name)) for name, m in model.named_modules() if name and _is_layer(m)]
    try:
        with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
            return found, outputs_of(model, x[:1].clone().requires_grad_())
    finally:
        for hook in hooks:
            hook.remove()


def top_layer(model: nn.Module, x: Tensor, *, deciding: bool = False) -> str:
    """The last layer or block that has a map: the paper's Z. With ``deciding`` the last one whose places reach the class at
    all: behind the last attention of a ViT only the class token does."""
    found, told = map_layers(model, x)
    if not found:
        raise ValueError(f"{type(model).__name__} has no layer with a feature map: name one with layer=")
    if deciding:
        slopes = torch.autograd.grad(told.max(), [output for _, output in found], allow_unused=True)
        for (name, output), slope in zip(reversed(found), reversed(slopes), strict=True):
            if slope is not None and grid_of(model, name, output).to_map(slope).any():
                return name
    return found[-1][0]


def _is_layer(module: nn.Module) -> bool:
    """Convolutions, norms, and blocks of others; what attention does with its heads inside is no map."""
    kinds = (nn.Conv2d, nn.LayerNorm, nn.BatchNorm2d, nn.GroupNorm)
    return isinstance(module, kinds) or any(True for _ in module.children())


def at_once(model: nn.Module, x: Tensor, *, backward: bool = False) -> int:
    """How many images the model can take in one pass within a budget of memory, judged by a pass of one."""
    cost = Rules("gradient")
    with torch.no_grad(), evaluating(model), cost:
        outputs_of(model, x[:1])
    return max(1, _KEPT // max(1, cost.made) if backward else _LARGEST // max(1, cost.largest))


@torch.no_grad()
def classes_of(model: nn.Module, x: Tensor, target: Target) -> Tensor:
    """(N,) classes, checked; what the model says of each image if none are given."""
    with evaluating(model):
        return targets_of(torch.cat([outputs_of(model, part) for part in torch.split(x, at_once(model, x))]), target)


def to_image_size(maps: Tensor, x: Tensor) -> Tensor:
    """(N, h, w) maps at the images' size."""
    return F.interpolate(maps[:, None], x.shape[-2:], mode="bilinear", align_corners=False)[:, 0]
