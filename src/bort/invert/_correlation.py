"""How similar two images are, whatever their brightness and contrast: the images that g makes have no scale of their own."""

from __future__ import annotations

from torch import Tensor

from bort._inspect import widened


def correlation(one: Tensor, other: Tensor) -> Tensor:
    """(N,): Pearson's correlation coefficient of two batches, image by image; 0 where an image is flat.

    Example:
        >>> x = torch.rand(2, 1, 4, 4)
        >>> torch.allclose(invert.correlation(x, 3 * x + 1), torch.ones(2))
        True
    """
    flat = [widened(images).flatten(1) for images in (one, other)]
    a, b = (images - images.mean(dim=1, keepdim=True) for images in flat)
    coefficients: Tensor = (a * b).sum(dim=1) / (a.norm(dim=1) * b.norm(dim=1)).clamp(min=1e-12)
    return coefficients
