"""How alike two pictures are, whatever their brightness and contrast: g has no scale of its own."""

from __future__ import annotations

from torch import Tensor


def correlation(one: Tensor, other: Tensor) -> Tensor:
    """(N,): Pearson's, image by image."""
    a, b = (t.flatten(1) - t.flatten(1).mean(dim=1, keepdim=True) for t in (one, other))
    found: Tensor = (a * b).sum(dim=1) / (a.norm(dim=1) * b.norm(dim=1)).clamp(min=1e-12)
    return found
