"""How other libraries' networks see an image, by what these libraries say of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from torch import nn

from bort.data import View

_INTERPOLATIONS: dict[object, Literal["bilinear", "bicubic"]] = {
    "bilinear": "bilinear",
    "bicubic": "bicubic",
    2: "bilinear",  # Pillow's numbers, which Hugging Face uses
    3: "bicubic",
}


def of_timm(model: nn.Module) -> View | None:
    """By the configuration that timm's networks carry; None if the model has none."""
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if not config:
        return None
    from timm.data import ImageNetInfo, infer_imagenet_subset, resolve_data_config

    use = resolve_data_config(pretrained_cfg=dict(config), model=model)
    channels, height, width = use["input_size"]
    names: tuple[str, ...] = ()
    subset = infer_imagenet_subset(model) if getattr(model, "num_classes", None) == config.get("num_classes") else None
    if subset:
        info = ImageNetInfo(subset)
        # "tench, Tinca tinca": the first of the synonyms.
        names = tuple(info.index_to_description(n).split(",")[0] for n in range(info.num_classes()))
    return View(
        _size(height, width),
        channels,
        tuple(use["mean"]),
        tuple(use["std"]),
        names,
        None if use["crop_mode"] == "squash" else use["crop_pct"],
        _INTERPOLATIONS.get(use["interpolation"], "bilinear"),
    )


def of_torchvision(function: Callable[..., Any]) -> View | None:
    """By the weights that torchvision offers for one of its functions, whether they are used or not."""
    if not getattr(function, "__module__", "").startswith("torchvision.models"):
        return None
    from torchvision.models import get_model_weights

    try:
        weights = get_model_weights(function.__name__).DEFAULT
    except (AttributeError, ValueError):
        return None
    use = weights.transforms()
    side, resized = use.crop_size[0], use.resize_size[0]
    names = tuple(weights.meta.get("categories", ()))
    interpolation = _INTERPOLATIONS.get(use.interpolation.value, "bilinear")
    return View(side, len(use.mean), tuple(use.mean), tuple(use.std), names, side / resized, interpolation)


def of_processor(processor: Any, config: Any) -> View:
    """By a Hugging Face image processor and the model's configuration."""
    size, crop = _sides(processor.size), _sides(getattr(processor, "crop_size", None))
    if getattr(processor, "do_rescale", True) and not math.isclose(processor.rescale_factor, 1 / 255, rel_tol=1e-3):
        raise ValueError(f"its image processor multiplies pixels by {processor.rescale_factor}, not by 1/255")
    part: float | None = 1.0
    if getattr(processor, "do_center_crop", False) and crop:
        part, size = crop[0] / size[0], crop
    elif getattr(processor, "crop_pct", None) and size[0] < 384:  # as ConvNeXt's processor does it
        part = processor.crop_pct
    elif "height" in dict(processor.size):
        part = None
    labels = getattr(config, "id2label", None) or {}
    names = tuple(str(labels[n]) for n in range(len(labels))) if set(labels) == set(range(len(labels))) else ()
    normalise = getattr(processor, "do_normalize", True)
    channels = int(getattr(config, "num_channels", 3))
    mean = tuple(processor.image_mean) if normalise else (0.0,) * channels
    std = tuple(processor.image_std) if normalise else (1.0,) * channels
    interpolation = _INTERPOLATIONS.get(int(processor.resample), "bilinear")
    return View(_size(*size), channels, mean, std, names, part, interpolation)


def _sides(size: Any) -> tuple[int, int]:
    """Height and width of what a processor calls a size; (0, 0) of none."""
    if not size:
        return 0, 0
    sides = dict(size)
    if "height" in sides:
        return int(sides["height"]), int(sides["width"])
    side = int(sides.get("shortest_edge", 0))
    return side, side


def _size(height: int, width: int) -> int | tuple[int, int]:
    return height if height == width else (height, width)
