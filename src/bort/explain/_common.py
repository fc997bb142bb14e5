"""What all explanations share: checked input, a target class, and a layer if none is named."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bort._modes import evaluating
from bort.invert._backtrack import check_input
from bort.invert._grid import grid_of

Target = Tensor | int | None
"""A class for each image, one for all, or None: what the model says."""


def check_images(model: nn.Module, x: Tensor) -> None:
    check_input(model, x)
    if x.ndim != 4:
        raise ValueError(f"images of shape {tuple(x.shape)}: give them as (N, channels, height, width)")


Progress = Callable[[int, int], None]
"""Called with (done, total) as a slow method goes on. To cancel it, raise an exception there, :class:`Cancelled` for one."""


class Cancelled(Exception):
    """Raised by a ``progress`` function to end a method early. The model is left as it was."""


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


def top_layer(model: nn.Module, x: Tensor) -> str:
    """The last layer that has a map with more than one place: the paper's Z."""
    found: list[str] = []

    def look(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if not isinstance(output, Tensor):
                return
            try:
                shape = grid_of(model, name, output).shape
            except ValueError:
                return
            if shape[1] * shape[2] > 1:
                found.append(name)

        return hook

    kinds = (nn.Conv2d, nn.LayerNorm) if _has_tokens(model) else (nn.Conv2d,)
    hooks = [m.register_forward_hook(look(name)) for name, m in model.named_modules() if isinstance(m, kinds)]
    try:
        with torch.no_grad(), evaluating(model):
            model(x[:1])
    finally:
        for hook in hooks:
            hook.remove()
    if not found:
        raise ValueError(f"{type(model).__name__} has no layer with a feature map: name one with layer=")
    return found[-1]


def _has_tokens(model: nn.Module) -> bool:
    return hasattr(model, "num_prefix_tokens") or getattr(model, "output_fmt", "NCHW") == "NHWC"


def to_image_size(maps: Tensor, x: Tensor) -> Tensor:
    """(N, h, w) maps at the images' size."""
    return F.interpolate(maps[:, None], x.shape[-2:], mode="bilinear", align_corners=False)[:, 0]
