"""How other libraries' networks see an image, and whether it has several classes, by what these libraries say of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any, Literal

import numpy as np
from torch import nn

from bort.data import View

_INTERPOLATIONS: dict[object, Literal["bilinear", "bicubic"]] = {
    "bilinear": "bilinear",
    "bicubic": "bicubic",
    2: "bilinear",  # Pillow's numbers, which Hugging Face uses
    3: "bicubic",
}
_SAME = 0.1
"""How far two libraries' inputs for an image may be apart: their resizing rounds otherwise, by a level of 255 or two."""


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


def is_multi_label(model: nn.Module) -> bool:
    """Whether a Hugging Face network says that an image may have several classes."""
    return getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification"


def of_processor(processor: Any, config: Any) -> View:
    """By a Hugging Face image processor and the model's configuration. A processor may do more than a View can say, such as
    swap the colours, so both are shown an image: a ValueError if they see it differently."""
    view = _described(processor, config)
    if view.channels in (1, 3):  # an image file has no others
        _compare(view, processor)
    return view


def _described(processor: Any, config: Any) -> View:
    """What the processor's settings say."""
    size, crop = _sides(processor.size), _sides(getattr(processor, "crop_size", None))
    if not all(size):
        raise ValueError(
            f"its image processor's size, {processor.size}, is neither height and width nor a shortest edge"
        )
    if getattr(processor, "do_rescale", True) and not math.isclose(processor.rescale_factor, 1 / 255, rel_tol=1e-3):
        raise ValueError(f"its image processor multiplies pixels by {processor.rescale_factor}, not by 1/255")
    if (interpolation := _INTERPOLATIONS.get(processor.resample)) is None:
        raise ValueError(
            f"its image processor resizes by Pillow's filter {processor.resample}, not bilinear or bicubic"
        )
    crop_part = getattr(processor, "crop_pct", None)
    part: float | None = 1.0
    if getattr(processor, "do_center_crop", False) and crop:
        part, size = crop[0] / size[0] * (crop_part or 1.0), crop  # PoolFormer's processor has both
    elif crop_part:
        part = crop_part if size[0] < 384 else None  # as ConvNeXt's processor does it
    elif "height" in dict(processor.size):
        part = None
    labels = getattr(config, "id2label", None) or {}
    is_complete = len(labels) > 1 and set(labels) == set(
        range(len(labels))
    )  # a single logit has two classes, without names
    names = tuple(str(labels[n]) for n in range(len(labels))) if is_complete else ()
    normalise = getattr(processor, "do_normalize", True)
    channels = int(getattr(config, "num_channels", 3))
    mean = tuple(processor.image_mean) if normalise else (0.0,) * channels
    std = tuple(processor.image_std) if normalise else (1.0,) * channels
    return View(_size(*size), channels, mean, std, names, part, interpolation)


def _compare(view: View, processor: Any) -> None:
    """That both make the same of an oblong image in which size, place, colours and sharpness show."""
    from PIL import Image

    height, width = view.height * 5 // 4, view.width * 7 // 4
    down, right = np.mgrid[:height, :width]
    colours = (down * 255 // height, right * 255 // width, (down // 8 + right // 8) % 2 * 200)
    image = Image.fromarray(np.stack(colours, axis=-1).astype(np.uint8)).convert("L" if view.channels == 1 else "RGB")
    try:
        theirs = processor(image, return_tensors="pt")["pixel_values"]
    except Exception as error:  # whatever the code of a processor raises
        raise ValueError(f"its image processor fails on an image: {error}") from error
    ours = view(image)
    if theirs.shape != ours.shape:
        shapes = ["×".join(map(str, x.shape[1:])) for x in (theirs, ours)]
        raise ValueError(f"its image processor makes {shapes[0]}, not {shapes[1]}, of an image")
    # Where a margin of the crop is odd, libraries differ by one pixel.
    differences = [
        (theirs.roll(shift, (2, 3)) - ours)[..., 1:-1, 1:-1].abs().max().item()
        for shift in product((-1, 0, 1), repeat=2)
    ]
    if not min(differences) <= _SAME:
        raise ValueError(
            f"its image processor does something else besides: it makes values up to {min(differences):.2g} away from what "
            "its size, crop, mean and std say"
        )


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
