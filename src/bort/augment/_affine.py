"""Affine maps with PIL's conventions: each pixel of the result is read at a place of the image, between its pixels.

A place is read by 4 × 4 weights, bilinear or cubic; bilinear uses the middle four of them. PIL's cubic here is the cubic
convolution with a = −1 (that of its resizing has −½, torch's −¾), so the weights are written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from bort._precision import own_precision
from bort.augment._constant import constant

_BILINEAR = ((0, 0, 0, 0), (1, -1, 0, 0), (0, 1, 0, 0), (0, 0, 0, 0))
_CUBIC = ((0, -1, 2, -1), (1, 0, -2, 1), (0, 1, 1, -1), (0, 0, -1, 1))
"""Weights of the pixels −1, 0, 1 and 2 as polynomials of the distance d from pixel 0: factors of 1, d, d², d³."""

_ROUNDING = 2.0**-10
"""Added before PIL's rounding down, so that sums of float32 weights that miss a whole number by their rounding reach it: flat
areas stay flat. One pixel in a thousand becomes one level lighter than PIL's."""

Factors = tuple[tuple[float, ...], ...]


class Taps(NamedTuple):
    """Where n maps read, and with which weights. P = H · W pixels of the result."""

    windows: Tensor
    """(n, 4 P) int64: which window of four pixels (see `sampled`), for each of the four rows."""
    across: Tensor
    """(n, 4, P) float32: weights within a window."""
    down: Tensor
    """(n, 4, P): weights of the rows."""
    inside: Tensor
    """(n, P) bool: the place is inside the image."""


def map_factors(kind: str, height: int, width: int) -> Factors:
    """(6, 4) factors: pixel (x, y) is read at (a x + b y + c, d x + e y + f), where each of a … f is a sum of 1, the map's
    argument v, 1 − cos v° and sin v° with these factors. Any other ``kind`` leaves the image as it is.

    angle: a rotation by v degrees, counterclockwise about the centre; shear_x, shear_y; shift_x, shift_y: in parts of a side.
    """
    x, y = width / 2, height / 2
    rotation = {"a": (-1, 0), "b": (0, -1), "c": (x, y), "d": (0, 1), "e": (-1, 0), "f": (y, -x)}
    linear = {"shear_x": ("b", 1.0), "shear_y": ("d", 1.0), "shift_x": ("c", width), "shift_y": ("f", height)}
    name, factor = linear.get(kind, ("", 0.0))
    return tuple(
        (
            1.0 if entry in "ae" else 0.0,
            factor if entry == name else 0.0,
            *(rotation[entry] if kind == "angle" else (0.0, 0.0)),
        )
        for entry in "abcdef"
    )


def affine_matrix(factors: Tensor, argument: Tensor) -> Tensor:
    """(n, 2, 3) in float32: rows a b c and d e f, out of `map_factors` (n, 6, 4) and arguments (n,), in float64."""
    angle = argument * (torch.pi / 180)
    terms = torch.stack((torch.ones_like(angle), argument, 1 - angle.cos(), angle.sin()), -1)
    return (factors * terms[:, None]).sum(-1).float().view(-1, 2, 3)


def affine_taps(matrix: Tensor, cubic: Tensor, height: int, width: int) -> Taps:
    """Out of matrices (n, 2, 3) and whether images are read with cubic weights (n,) or bilinear ones."""
    device = matrix.device
    with own_precision("highest", device):
        place = matrix @ _centres(height, width, device)  # (n, 2, P)
    sides = constant(((width,), (height,)), torch.float32, device)
    inside = ((place >= 0) & (place < sides)).all(1)
    place = place.sub_(0.5)
    whole = place.floor()
    distance = place.sub_(whole)[:, :, None]
    polynomials = constant((_BILINEAR, _CUBIC), torch.float32, device)[cubic.long()][:, None, ..., None]
    one, first, second, third = polynomials.unbind(3)  # (n, 1, 4, 1) each
    weights = torch.addcmul(second, third, distance)
    weights = torch.addcmul(first, weights, distance, out=weights)
    weights = torch.addcmul(one, weights, distance, out=weights)  # (n, 2, 4, P)
    column = whole[:, :1].clamp(-1, width - 1).add_(1)
    row = (whole[:, 1:] + constant(((-1,), (0,), (1,), (2,)), torch.float32, device)).clamp_(0, height - 1)
    windows = torch.add(column, row, alpha=width + 1).long()
    return Taps(windows.flatten(1), weights[:, 0], weights[:, 1], inside)


def sampled(images: Tensor, taps: Taps, fill: Tensor) -> Tensor:
    """Images (n, C, H, W) in uint8, each read at its taps; ``fill`` (C,) where those are outside.

    Four neighbouring pixels of a row are read as one number of 32 bits: a gather takes as long for four bytes as for one.
    """
    count, channels, height, width = images.shape
    columns = tuple(min(max(start + k, 0), width - 1) for start in range(-2, width - 1) for k in range(4))
    windows = images.index_select(3, constant(columns, torch.int64, images.device)).view(torch.int32).flatten(2)
    read = windows.gather(2, taps.windows[:, None].expand(-1, channels, -1))
    pixels = read.view(torch.uint8).view(count, channels, 4, height * width, 4)
    rows = _weighted(pixels.unbind(4), taps.across[:, None, None].unbind(3))
    value = _weighted(rows.unbind(2), taps.down[:, None].unbind(2)).add_(_ROUNDING).clamp_(0, 255)
    return torch.where(taps.inside[:, None], value.byte(), fill[:, None]).view_as(images)


@cache
def _centres(height: int, width: int, device: torch.device) -> Tensor:
    """(3, P): x and y of the centres of all pixels, and 1."""
    y, x = torch.meshgrid(*(torch.arange(side) + 0.5 for side in (height, width)), indexing="ij")
    return torch.stack((x, y, torch.ones_like(x))).flatten(1).to(device)


def _weighted(parts: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    total = parts[0] * weights[0]
    for part, weight in zip(parts[1:], weights[1:]):
        total.addcmul_(part, weight)
    return total
