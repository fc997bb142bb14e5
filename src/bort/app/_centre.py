"""A drawing placed as MNIST's digits are."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Ink = NDArray[np.float32]
"""(height, width): 0 is paper, 1 is ink."""

_BOX: Final = 20 / 28
"""The part of the field's side that MNIST's digits fill."""
_FAINT: Final = 0.02  # what an eraser's soft edge may have left


def centred(ink: Ink, height: int, width: int) -> Ink:
    """The ink on a field of that size, as MNIST was made (LeCun, Cortes, Burges): scaled to fit a box of 20/28 of the field
    with its ratio kept and soft edges, and moved by whole pixels until its centre of mass is at the field's middle pixel."""
    rows, columns = (np.flatnonzero((ink > _FAINT).any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return np.zeros((height, width), np.float32)
    cropped = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = min(_box(height) / cropped.shape[0], _box(width) / cropped.shape[1])
    scaled = resized(cropped, *(max(1, round(scale * side)) for side in cropped.shape))
    total = scaled.sum()
    field = np.zeros((height, width), np.float32)
    top = _first_pixel(float((scaled.sum(axis=1) * np.arange(scaled.shape[0])).sum() / total), scaled.shape[0], height)
    left = _first_pixel(float((scaled.sum(axis=0) * np.arange(scaled.shape[1])).sum() / total), scaled.shape[1], width)
    field[top : top + scaled.shape[0], left : left + scaled.shape[1]] = scaled
    return field


def resized(ink: Ink, height: int, width: int) -> Ink:
    """With soft edges: each new pixel is the mean of those that it covers, or between those that it lies between."""
    from PIL.Image import Resampling, fromarray

    how = Resampling.BOX if height <= ink.shape[0] and width <= ink.shape[1] else Resampling.BILINEAR
    return np.asarray(fromarray(np.ascontiguousarray(ink)).resize((width, height), how)).clip(0, 1)


def _box(side: int) -> int:
    return max(1, round(_BOX * side))


def _first_pixel(centre: float, length: int, side: int) -> int:
    """Where something of that length begins so that its centre of mass is at pixel side // 2; it stays inside the field."""
    return min(max(0, round(side // 2 - centre)), side - length)
