"""How similar two images are, whatever their brightness and contrast: the images that g makes have no scale of their own."""

from __future__ import annotations

from torch import Tensor


def correlation(one: Tensor, other: Tensor) -> Tensor:
    """(N,): Pearson's correlation coefficient of two batches, image by image; 0 where an image is flat."""
    a, b = (t.flatten(1) - t.flatten(1).mean(dim=1, keepdim=True) for t in (one, other))
    coefficients: Tensor = (a * b).sum(dim=1) / (a.norm(dim=1) * b.norm(dim=1)).clamp(min=1e-12)
    return coefficients
