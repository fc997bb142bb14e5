"""Random boxes inside images, as random resized crops and random erasing draw them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bort.augment._constant import constant
from bort.augment._draws import randint

_ATTEMPTS = 10
BOX_DRAWS = 2 * _ATTEMPTS + 2
"""How many uniform numbers a box takes."""


class Boxes(NamedTuple):
    """In whole pixels, float64."""

    corner: Tensor
    """(B, 2): top, left"""
    size: Tensor
    """(B, 2): height, width"""


def random_boxes(
    u: Tensor, sides: Tensor, *, areas: tuple[float, float], widest: float, margin: int
) -> tuple[Boxes, Tensor]:
    """Boxes of random areas and shapes at random places, and whether there is one (B,).

    Up to ten times an area is drawn uniformly from ``areas`` (parts of the image's), and a ratio of width to height
    log-uniformly from 1/widest to widest. The first box that fits is taken, and its place drawn uniformly.

    Args:
        u: (B, BOX_DRAWS) uniform numbers
        sides: (B, 2) or (1, 2): heights and widths of the images
        margin: a box fits if it is smaller than the image by this many pixels in both directions
    """
    low, high = areas
    area = (low + (high - low) * u[:, :_ATTEMPTS]) * sides.prod(1, keepdim=True)
    slope = math.log(widest)  # of the logarithm of √ratio
    signed = constant(((-slope,), (slope,)), torch.float64, u.device)
    stretch = torch.exp((u[:, None, _ATTEMPTS : 2 * _ATTEMPTS] - 0.5) * signed)
    size = (area.sqrt()[:, None] * stretch).round()  # (B, 2, attempts)
    fits = (size <= (sides - margin)[:, :, None]).all(1)
    first = fits.byte().argmax(1)
    size = size.gather(2, first[:, None, None].expand(-1, 2, 1))[:, :, 0]
    return Boxes(randint(u[:, -2:], sides - size + 1), size), fits.any(1)
