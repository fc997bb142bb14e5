"""What pixels are replaced by when deletion takes them away, and what insertion starts from."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from bort._inspect import widened

Substrate = Literal["zero", "mean", "blur"]
"""0, the mean colour of normalised images; each image's own mean colour; or the image blurred."""


def substrate(images: Tensor, kind: Substrate) -> Tensor:
    """The images without their evidence, in the images' shape."""
    if kind == "zero":
        return torch.zeros_like(images)
    if kind == "mean":
        return images.mean(dim=(2, 3), keepdim=True).expand_as(images)
    if kind != "blur":
        raise ValueError(f'a substrate is "zero", "mean" or "blur", not {kind!r}')
    wide = widened(images)
    kernel = _blur().to(wide)
    channels = images.shape[1]
    across = F.conv2d(wide, kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1), padding=(0, 5), groups=channels)
    blurred = F.conv2d(across, kernel.view(1, 1, -1, 1).expand(channels, 1, -1, 1), padding=(5, 0), groups=channels)
    return blurred.to(images.dtype)


def _blur() -> Tensor:
    """(11,): one dimension of the kernel that RISE's authors use, scipy's gaussian_filter of deviation 5 applied to a single
    pixel in the middle of 11 × 11. The filter mirrors at the borders what lies outside, so the kernel is flatter than a
    truncated Gaussian."""
    offsets = torch.arange(-20, 21)
    weights = torch.exp(-offsets.double().square() / (2 * 5.0**2))
    places = (5 + offsets) % 22
    return torch.zeros(11, dtype=torch.float64).index_add(
        0, torch.minimum(places, 21 - places), weights / weights.sum()
    )
