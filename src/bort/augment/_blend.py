"""Blends of an image with a degenerate version of it, which is grey, flat or blurred: PIL's ImageEnhance.

Images are float32 with whole values here. Sums have at most 24 bits, so they are exact.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from bort.augment._constant import constant


def blended(degenerate: Tensor, x: Tensor, factor: Tensor) -> Tensor:
    """degenerate + factor · (x − degenerate) in uint8, clipped and rounded down as in PIL; ``factor`` is (n,).

    Multiplied and added in two steps: a fused operation would round once, PIL rounds twice.
    """
    return (x - degenerate).mul_(factor[:, None, None, None]).add_(degenerate).clamp_(0, 255).byte()


def grey(x: Tensor) -> Tensor:
    """(n, 1, H, W) of images (n, C, H, W): PIL's luma, in 16-bit fixed point."""
    if x.shape[1] == 1:
        return x
    weights = constant((19595 / 2**16, 38470 / 2**16, 7471 / 2**16), torch.float32, x.device)[:, None, None]
    return (x * weights).sum(1, keepdim=True).add_(0.5).floor_()


def mean_level(x: Tensor) -> Tensor:
    """(n, 1, 1, 1): the mean of grey images, rounded."""
    pixels = x.shape[2] * x.shape[3]
    return x.sum((2, 3), keepdim=True, dtype=torch.float64).div_(pixels).add_(0.5).floor_().float()


def smooth(x: Tensor) -> Tensor:
    """PIL's SMOOTH: the mean of 3 × 3 pixels, the middle one five times. The border is left as it is, and so are images with
    sides below 3 pixels."""
    if min(x.shape[2:]) < 3:
        return x
    sums = F.avg_pool2d(x, 3, stride=1, divisor_override=1).add_(x[:, :, 1:-1, 1:-1], alpha=4)
    result = x.clone()
    torch.floor(sums.div_(13).add_(0.5), out=result[:, :, 1:-1, 1:-1])
    return result
