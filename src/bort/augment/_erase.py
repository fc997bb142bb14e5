"""Random erasing with noise: timm's RandomErasing in its mode "pixel", one box an image."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from bort.augment._boxes import BOX_DRAWS, random_boxes
from bort.augment._constant import constant
from bort.augment._draws import randint

_AREAS = (0.02, 1 / 3)
_WIDEST = 1 / 0.3
ERASE_DRAWS = BOX_DRAWS + 2
"""How many uniform numbers an image takes."""

NOISE = 2**22


def erase(images: Tensor, u: Tensor, probability: float) -> None:
    """Erase a box of each image (N, C, H, W), normalised, in place, with a given probability.

    The box is 2 to 33 % of the image's area, width : height from 3:10 to 10:3, and is filled with standard normal noise. The
    noise is read from one table of 2²² numbers, from a place that the image draws. So it depends on the image's key alone
    and costs one read; two images have the same noise at the same pixels with a chance of about 2 · 10⁻⁷.

    Args:
        u: (N, ERASE_DRAWS) uniform numbers
    """
    count, channels, height, width = images.shape
    sides = constant(((height, width),), torch.float64, images.device)
    box, found = random_boxes(u[:, :BOX_DRAWS], sides, areas=_AREAS, widest=_WIDEST, margin=1)
    found = found & (u[:, BOX_DRAWS] < probability)
    place = constant(tuple(range(max(height, width))), torch.float64, images.device)
    begin, end = box.corner[:, :, None], (box.corner + box.size)[:, :, None]
    inside = (place >= begin) & (place < end) & found[:, None, None]
    rows, columns = inside[:, 0, :height], inside[:, 1, :width]
    length = channels * height * width
    starts = randint(u[:, BOX_DRAWS + 1], NOISE - length + 1).long()
    noise = _noise(images.device).unfold(0, length, 1)[starts].view(count, channels, height, width)
    torch.where(rows[:, None, :, None] & columns[:, None, None, :], noise, images, out=images)


@cache
def _noise(device: torch.device) -> Tensor:
    return torch.randn(NOISE, generator=torch.Generator().manual_seed(0)).to(device)
