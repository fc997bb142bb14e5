"""Affine maps with PIL's conventions: each pixel of the result is read at a place of the image, between its pixels.

Bilinear reading is torch's `grid_sample`. Cubic reading in PIL's maps is the cubic convolution with a = −1, where torch has
a = −¾ (and PIL's resizing −½). With C torch's weights along an axis, and S linear weights for the distance d² (3 − 2d) in
place of d, PIL's weights are 4/3 C − 1/3 S. So 4/3 of a cubic reading minus 1/3 of a bilinear one is PIL's result where a map
moves pixels along one axis only, as shears and shifts do. For rotations it lacks the reading 4/9 (C − S) ⊗ (C − S), which
changes one in twenty pixels of a photograph by one level, and pixels of white noise by up to four. The 4 × 4 weights written
out take three times as long on a GPU.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from bort._precision import own_precision
from bort.augment._constant import constant

_SHARE = 4 / 3

_ROUNDING = 2.0**-10
"""Added before PIL's rounding down, so that sums of float32 weights that miss a whole number by their rounding reach it: flat
areas stay flat. One pixel in a thousand becomes one level lighter than PIL's."""

Factors = tuple[tuple[float, ...], ...]


class Places(NamedTuple):
    """Where n maps read, in `grid_sample`'s coordinates: −1 … 1 from border to border."""

    cubic: Tensor
    """(n, 2, H, W): x and y for the cubic reading."""
    linear: Tensor
    """(n, 2, H, W): for the bilinear reading."""
    share: Tensor
    """(n, 1, 1, 1) of the cubic reading: 4/3, or 0."""
    inside: Tensor
    """(n, 1, H, W) bool: the place is inside the image."""


def map_factors(kind: str, height: int, width: int) -> Factors:
    """(6, 4) factors: the pixel with the centre (x, y) is read at (a x + b y + c, d x + e y + f), where each of a … f is a
    sum of 1, the map's argument v, 1 − cos v° and sin v° with these factors. Any other ``kind`` leaves the image as it is.

    As in PIL, pixel k has its centre at k + ½. The place that is read is counted from the centre of the first pixel, so that
    its whole part is the number of a pixel.

    angle: a rotation by v degrees, counterclockwise about the centre; shear_x, shear_y; shift_x, shift_y: in parts of a side.
    """
    x, y = width / 2, height / 2
    rotation = {"a": (-1, 0), "b": (0, -1), "c": (x, y), "d": (0, 1), "e": (-1, 0), "f": (y, -x)}
    linear = {"shear_x": ("b", 1.0), "shear_y": ("d", 1.0), "shift_x": ("c", width), "shift_y": ("f", height)}
    name, factor = linear.get(kind, ("", 0.0))
    return tuple(
        (
            {"a": 1.0, "e": 1.0, "c": -0.5, "f": -0.5}.get(entry, 0.0),
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


def affine_places(matrix: Tensor, cubic: Tensor, height: int, width: int) -> Places:
    """Out of matrices (n, 2, 3) and whether images are read with cubic weights (n,) or bilinear ones."""
    device = matrix.device
    with own_precision("highest", device):
        place = matrix @ _centres(height, width, device)  # (n, 2, P)
    scale = constant(((2 / width,), (2 / height,)), torch.float32, device)
    offset = constant(((1 / width - 1,), (1 / height - 1,)), torch.float32, device)
    whole = place.floor()
    distance = place - whole
    smoothed = (distance * distance).mul_(constant((3.0,), torch.float32, device).sub(distance, alpha=2))
    linear = torch.where(cubic[:, None, None], smoothed, distance).add_(whole).mul_(scale).add_(offset)
    place = place.mul_(scale).add_(offset)
    inside = ((place >= -1) & (place < 1)).all(1, keepdim=True)
    share = constant((0.0, _SHARE), torch.float32, device)[cubic.long()][:, None, None, None]
    place, linear, inside = (torch.unflatten(value, 2, (height, width)) for value in (place, linear, inside))
    return Places(place, linear, share, inside)


def sampled(images: Tensor, places: Places, fill: Tensor) -> Tensor:
    """Images (n, C, H, W) in uint8, each read at its places; ``fill`` (C,) where those are outside."""
    x = images.float()
    cubic, linear = (
        F.grid_sample(x, where.permute(0, 2, 3, 1), mode, "border", align_corners=False)
        for where, mode in ((places.cubic, "bicubic"), (places.linear, "bilinear"))
    )
    value = torch.lerp(linear, cubic, places.share).add_(_ROUNDING).clamp_(0, 255)
    return torch.where(places.inside, value.byte(), fill[:, None, None])


@cache
def _centres(height: int, width: int, device: torch.device) -> Tensor:
    """(3, P): x and y of the centres of all P = H · W pixels, and 1."""
    y, x = torch.meshgrid(*(torch.arange(side) + 0.5 for side in (height, width)), indexing="ij")
    return torch.stack((x, y, torch.ones_like(x))).flatten(1).to(device)
