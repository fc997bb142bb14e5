"""Tensors as pictures."""

from __future__ import annotations

import io
import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Picture = NDArray[np.uint8]
"""(H, W, 3)"""
HEAT = "inferno"
"""Dark to bright in even steps, also in grey and for the colour-blind."""


def picture(pixels: Tensor) -> Picture:
    """An image (C, H, W) in [0, 1], grey or in colour."""
    values = pixels.detach().cpu().float().clamp(0, 1).expand(3, *pixels.shape[1:])
    return (values * 255).round().byte().permute(1, 2, 0).numpy()


def signal(values: Tensor) -> Picture:
    """What came back from a layer, (C, H, W): its own range from dark to bright, the outermost hundredth cut off. A signal
    has no scale of its own."""
    flat = values.detach().cpu().float()
    low, high = _range(flat)
    return picture((flat - low) / (high - low))


def heat(saliency: Tensor) -> Picture:
    """A map (H, W) in colours, from its 1st to its 99th percentile: the order of the values is what counts."""
    import matplotlib

    flat = saliency.detach().cpu().float()
    low, high = _range(flat)
    colours = matplotlib.colormaps[HEAT](((flat - low) / (high - low)).clamp(0, 1).numpy(), bytes=True)
    return np.ascontiguousarray(colours[..., :3])


def overlay(pixels: Tensor, saliency: Tensor, strength: float = 0.6) -> Picture:
    """The map over the image in grey."""
    if not 0 <= strength <= 1:
        raise ValueError(f"strength={strength}: must be from 0 (the image) to 1 (the map)")
    grey = picture(pixels.mean(dim=0, keepdim=True)).astype(np.float32)
    mixed = (1 - strength) * grey + strength * heat(saliency).astype(np.float32)
    return mixed.round().astype(np.uint8)


def _range(values: Tensor) -> tuple[float, float]:
    low, high = (values.flatten().quantile(part).item() for part in (0.01, 0.99))
    if high <= low:  # sparse maps: more than 99 of 100 values are one
        low, high = values.min().item(), values.max().item()
    return low, high if high > low else low + 1


def enlarged(image: Picture, side: int = 224) -> Picture:
    """At least that large, each pixel a whole number of pixels: small images stay sharp."""
    factor = math.ceil(side / max(image.shape[:2]))
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


def png(image: Picture) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def npy(values: Tensor) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values.detach().cpu().numpy(), allow_pickle=False)
    return buffer.getvalue()


def grid(images: list[list[Picture]], gap: int = 2, colour: int = 255) -> Picture:
    """Rows of pictures of one size as one picture."""
    height, width = images[0][0].shape[:2]
    rows, columns = len(images), max(map(len, images))
    canvas = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap, 3), colour, dtype=np.uint8)
    for r, row in enumerate(images):
        for c, each in enumerate(row):
            canvas[r * (height + gap) :, c * (width + gap) :][:height, :width] = each
    return canvas
