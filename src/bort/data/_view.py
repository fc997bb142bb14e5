"""From an image file to a network's input, and from the input back to pixels."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class View:
    """Resizes, crops and normalises an image: for testing, for explaining, and for training without augmentation.

    Images are resized so that a crop of 7/8 has the size wanted, as on ImageNet; those that are no larger (Tiny ImageNet's,
    digits) are left whole.
    """

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...] = ()

    def __call__(self, image: Image) -> Tensor:
        """(1, C, size, size). Equal to timm's evaluation transform to the bit, without the seconds of importing timm."""
        return self.normaliser("cpu")(self.crop(image)[None])

    def crop(self, image: Image) -> Tensor:
        """The bytes (C, size, size) that the network sees of an image."""
        from PIL.Image import Resampling

        image = to_eight_bits(image).convert("L" if self.channels == 1 else "RGB")
        shorter = min(image.size)
        target = self.size if shorter <= self.size else math.floor(self.size / 0.875)
        width, height = (target if side == shorter else int(target * side / shorter) for side in image.size)
        left, top = round((width - self.size) / 2), round((height - self.size) / 2)
        resized = image.resize((width, height), Resampling.BILINEAR)
        pixels = np.array(resized.crop((left, top, left + self.size, top + self.size)))
        return torch.from_numpy(pixels.reshape(self.size, self.size, self.channels)).permute(2, 0, 1).contiguous()

    def normaliser(self, device: torch.device | str) -> Callable[[Tensor], Tensor]:
        """A function from bytes (N, C, H, W) on the device to the network's input."""
        mean, std = (torch.tensor(values, device=device).view(-1, 1, 1) for values in (self.mean, self.std))
        return lambda images: (images.float() / 255 - mean) / std

    def read(self, file: str | os.PathLike[str]) -> Tensor:
        """(1, C, size, size) of an image file."""
        from PIL import Image as images
        from PIL import ImageOps

        path = Path(file)
        if not path.is_file():
            raise FileNotFoundError(f"there is no image {path}")
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
        """The name of a class; its number if it has none."""
        return self.class_names[label] if label < len(self.class_names) else str(label)


def to_eight_bits(image: Image) -> Image:
    """The image as 8-bit grey or RGB. PIL's own conversion would clip 16-bit values at 255, and show the colours stored under
    transparent pixels; here 16 bits are scaled, and transparent pixels become white."""
    if image.mode.startswith("I") or image.mode == "F":
        high: Any = image.getextrema()[1]
        scale = 1 / 257 if high > 255 else 1.0 if high > 1 else 255.0
        return image.convert("F").point(lambda value: value * scale).convert("L")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        from PIL import Image as images

        solid = image.convert("RGBA")
        white = images.new("RGBA", solid.size, (255, 255, 255, 255))
        return images.alpha_composite(white, solid).convert("RGB")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")
