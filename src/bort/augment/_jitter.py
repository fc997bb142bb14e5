"""Colour jitter: torchvision's ColorJitter on PIL images, without a change of hue."""

from __future__ import annotations

import torch
from torch import Tensor

from bort.augment._blend import blended, grey, mean_level

_BRIGHTNESS, _CONTRAST = 0, 1  # and 2, saturation
JITTER_DRAWS = 6
"""How many uniform numbers an image takes."""


def jittered(images: Tensor, u: Tensor, strength: float) -> Tensor:
    """Images (N, C, H, W) in uint8 with brightness, contrast and saturation changed, in an order that each image draws, by
    factors uniform in max(0, 1 − strength) … 1 + strength.

    Args:
        u: (N, JITTER_DRAWS) uniform numbers
    """
    low, high = max(0.0, 1 - strength), 1 + strength
    order = u[:, 3:].argsort(dim=1)
    factors = (low + (high - low) * u[:, :3]).gather(1, order).float()
    for kind, factor in zip(order[..., None, None, None].unbind(1), factors.unbind(1)):
        x = images.float()
        luma = grey(x)
        degenerate = torch.where(kind == _CONTRAST, mean_level(luma), luma)
        images = blended(torch.where(kind == _BRIGHTNESS, 0.0, degenerate), x, factor)
    return images
