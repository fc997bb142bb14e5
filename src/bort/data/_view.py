"""From an image file to a network's input, and from the input back to pixels."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class View:
    """Resizes, crops and normalises an image: for testing, for explaining, and for training without augmentation.

    Images are resized so that a central crop of 7/8 has the size wanted, as on ImageNet; those that are no larger (Tiny
    ImageNet's, digits) are left whole.

    Example:
        >>> view = data.View(28, 1, mean=(0.25,), std=(0.5,), class_names=("cat", "dog"))
        >>> view.pixels(torch.ones(1, 28, 28)).max()  # 1 · 0.5 + 0.25
        tensor(0.7500)
        >>> view.name(1), view.name(7)
        ('dog', '7')
    """

    size: int | tuple[int, int]
    """Of the network's input: a side, or (height, width)."""
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...] = ()
    crop_part: float | None = 0.875
    """The part of a larger image's side that the crop keeps. None: nothing is cut off, the image is squeezed to the size."""
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"

    @property
    def height(self) -> int:
        return self.size if isinstance(self.size, int) else self.size[0]

    @property
    def width(self) -> int:
        return self.size if isinstance(self.size, int) else self.size[1]

    def __call__(self, image: Image) -> Tensor:
        """(1, C, height, width). Equal to timm's evaluation transform to the bit, without the seconds of importing timm."""
        return self.normaliser("cpu")(self.crop(image)[None])

    def crop(self, image: Image) -> Tensor:
        """The bytes (C, height, width) that the network sees of an image."""
        from PIL.Image import Resampling

        if self.channels not in (1, 3):
            raise ValueError(
                f"this network sees {self.channels} channels, an image file has 1 or 3: give its images as a tensor"
            )
        image = to_eight_bits(image).convert("L" if self.channels == 1 else "RGB")
        resized = image.resize(self._resized(*image.size), Resampling[self.interpolation.upper()])
        left, top = round((resized.width - self.width) / 2), round((resized.height - self.height) / 2)
        pixels = np.array(resized.crop((left, top, left + self.width, top + self.height)))
        return torch.from_numpy(pixels.reshape(self.height, self.width, self.channels)).permute(2, 0, 1).contiguous()

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        """Width and height before the crop: the smaller ones that cover it, with the proportions of the image."""
        if self.crop_part is None:
            return self.width, self.height
        part = 1.0 if width <= self.width or height <= self.height else self.crop_part
        target_width, target_height = (math.floor(side / part) for side in (self.width, self.height))
        if target_width == target_height:
            shorter = min(width, height)
            sides = [
                target_width if side == shorter else int(target_width * side / shorter) for side in (width, height)
            ]
            return sides[0], sides[1]
        ratio = min(width / target_width, height / target_height)
        return round(width / ratio), round(height / ratio)

    def normaliser(self, device: torch.device | str) -> Callable[[Tensor], Tensor]:
        """A function from bytes (N, C, H, W) on the device to the network's input."""
        mean, std = (torch.tensor(values, device=device).view(-1, 1, 1) for values in (self.mean, self.std))
        return lambda images: (images.float() / 255 - mean) / std

    def read(self, file: str | os.PathLike[str]) -> Tensor:
        """(1, C, height, width) of an image file. A ValueError names a file that cannot be read."""
        from PIL import Image as images
        from PIL import ImageOps

        path = Path(file)
        if not path.is_file():
            raise ValueError(f"there is no image {path}")
        try:
            with images.open(path) as image:
                return self(ImageOps.exif_transpose(image))  # upright, as the camera was held
        except Exception as error:  # damaged files make decoders throw anything
            raise ValueError(f"{path} is not a readable image: {error}") from error

    def pixels(self, x: Tensor) -> Tensor:
        """Normalised images (…, C, H, W) as a person sees them, in [0, 1]."""
        mean, std = self._statistics(x)
        return (x * std + mean).clamp(0, 1)

    def normalised(self, pixels: Tensor) -> Tensor:
        """The network's input for pixels (…, C, H, W) in [0, 1]: the inverse of :meth:`pixels`."""
        mean, std = self._statistics(pixels)
        return (pixels - mean) / std

    def _statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation (C, 1, 1), in the type and on the device of a tensor."""
        mean, std = (
            torch.tensor(s, dtype=like.dtype, device=like.device).view(-1, 1, 1) for s in (self.mean, self.std)
        )
        return mean, std

    def name(self, label: int) -> str:
        """The name of a class; its number if it has none, and nothing for -1, a class that is not known."""
        if label < 0:
            return ""
        return self.class_names[label] if label < len(self.class_names) else str(label)


def to_eight_bits(image: Image, high: float | None = None) -> Image:
    """The image as 8-bit grey or RGB. PIL's own conversion would clip 16-bit values at 255, and show the colours stored under
    transparent pixels; here 16 bits are scaled, and transparent pixels become white. ``high``: the largest value of the whole
    image, if this is a part of one.

    Example:
        >>> from PIL import Image
        >>> data.to_eight_bits(Image.new("RGBA", (1, 1), (255, 0, 0, 0))).getpixel((0, 0))  # transparent: white
        (255, 255, 255)
    """
    if image.mode.startswith("I") or image.mode == "F":
        if high is None:
            extremes: Any = image.getextrema()
            high = float(extremes[1])
        scale = 1 / 257 if high > 255 else 1.0 if high > 1 else 255.0
        return image.convert("F").point(lambda value: value * scale).convert("L")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        from PIL import Image as images

        solid = image.convert("RGBA")
        white = images.new("RGBA", solid.size, (255, 255, 255, 255))
        return images.alpha_composite(white, solid).convert("RGB")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")
