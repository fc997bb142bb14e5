"""Images made worse: Gaussian noise, Gaussian blur, JPEG. All act on pixels in [0, 1], before normalisation."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

CORRUPTIONS: Final = (
    *("noise 0.04", "noise 0.08", "noise 0.12"),
    *("blur 0.5", "blur 1.0", "blur 1.5"),
    *("jpeg 50", "jpeg 25", "jpeg 10"),
    *("fgsm 2/255", "fgsm 4/255"),
)
"""A corruption's name is its family and its strength: the deviation of noise, the deviation of the blur in pixels, the
quality of JPEG, and how far FGSM may change a pixel."""

_FAMILIES: Final = ("noise", "blur", "jpeg", "fgsm")


@dataclass(frozen=True)
class Corruption:
    """A name of :data:`CORRUPTIONS`, or one with another strength, taken apart."""

    family: str
    strength: float

    @classmethod
    def named(cls, name: str) -> Corruption:
        """From a name: noise of deviation 0.08 from "noise 0.08". "clean" is the image as it is."""
        if name == "clean":
            return cls("clean", 0.0)
        family, _, text = name.partition(" ")
        try:
            strength = float(Fraction(text))
        except (ValueError, ZeroDivisionError):
            strength = math.nan
        is_known = family in _FAMILIES and strength >= 0
        if not is_known or (family == "jpeg" and strength not in range(1, 101)):
            raise ValueError(
                f'{name!r} is not a corruption: give "noise" or "blur" with a deviation, "jpeg" with a quality from 1 to '
                '100, or "fgsm" with the largest change of a pixel, as in "noise 0.08", "blur 1.0", "jpeg 25", "fgsm 2/255"'
            )
        return cls(family, strength)


def corrupted(pixels: Tensor, kind: str, seed: int = 0) -> Tensor:
    """Images (N, C, H, W) in [0, 1] under a corruption that needs no network, again in [0, 1]: what :func:`robustness` shows.

    Args:
        pixels: of what a network sees, as :meth:`bort.data.View.pixels` gives them.
        kind: such as "noise 0.08", "blur 1.0" or "jpeg 25".
        seed: of the noise.

    Example:
        >>> flat = torch.full((1, 1, 8, 8), 0.5)
        >>> torch.allclose(measure.corrupted(flat, "blur 1.0"), flat, atol=1e-6)
        True
        >>> torch.equal(measure.corrupted(flat, "noise 0.08", seed=1), measure.corrupted(flat, "noise 0.08", seed=1))
        True
    """
    corruption = Corruption.named(kind)
    if pixels.ndim != 4 or not pixels.is_floating_point() or not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError("pixels are given as (N, channels, height, width), in floating-point numbers from 0 to 1")
    return apply(corruption, pixels, lambda: draw_noise(pixels, torch.Generator().manual_seed(seed)))


def apply(corruption: Corruption, pixels: Tensor, noise: Callable[[], Tensor]) -> Tensor:
    """The pixels under a corruption that needs no network; ``noise`` gives what :func:`draw_noise` has drawn for them."""
    match corruption.family:
        case "clean":
            return pixels
        case "noise":
            return (pixels + corruption.strength * noise()).clamp(0, 1)
        case "blur":
            return _blurred(pixels, corruption.strength)
        case "jpeg":
            return _compressed(pixels, int(corruption.strength))
    raise ValueError(f"{corruption.family} depends on the network that is attacked: use robustness(model, …)")


def draw_noise(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers in the pixels' shape. Drawn on the CPU and image by image, so that an image's noise depends
    neither on the device nor on the size of the batch."""
    return torch.stack([torch.randn(pixels.shape[1:], generator=generator) for _ in range(len(pixels))]).to(pixels)


def _blurred(pixels: Tensor, deviation: float) -> Tensor:
    """Convolved with a sampled Gaussian, cut off at four deviations. Beyond the border the outermost pixels are repeated.

    A sum of shifted images instead of ``conv2d``, which a GPU may compute in TF32, with ten bits.
    """
    radius = int(4 * deviation + 0.5)
    if not radius:
        return pixels
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weights = torch.exp(-offsets.square() / (2 * deviation**2))
    kernel = (weights / weights.sum()).tolist()
    for dim, padding in ((3, (radius, radius, 0, 0)), (2, (0, 0, radius, radius))):
        padded, length = F.pad(pixels, padding, mode="replicate"), pixels.shape[dim]
        pixels = torch.zeros_like(pixels)
        for start, weight in enumerate(kernel):
            pixels.add_(padded.narrow(dim, start, length), alpha=weight)
    return pixels.clamp(0, 1)  # the weights' sum may be rounded to more than 1


def _compressed(pixels: Tensor, quality: int) -> Tensor:
    """Rounded to bytes, written as JPEG by PIL and read back. PIL halves the resolution of colours (4:2:0)."""
    import numpy as np
    from PIL import Image

    if pixels.shape[1] not in (1, 3):
        raise ValueError(f"JPEG has 1 or 3 channels, these images have {pixels.shape[1]}: leave jpeg out")
    images = []
    for image in (pixels * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy():
        file = io.BytesIO()
        Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(file, "JPEG", quality=quality)
        with Image.open(file) as read:
            images.append(torch.from_numpy(np.array(read).reshape(image.shape)))
    return torch.stack(images).permute(0, 3, 1, 2).to(pixels) / 255
