"""Spearman's rank correlation."""

from __future__ import annotations

import torch
from torch import Tensor


def rank_correlation(a: Tensor, b: Tensor) -> Tensor:
    """(N,) of the rows of (N, P) and (N, P): Pearson's correlation of the ranks, in float64. Equal values share the mean of
    their ranks; nan where all values of a row are equal, or one is not finite."""
    u, v = (ranks - ranks.mean(dim=1, keepdim=True) for ranks in (_ranks(a), _ranks(b)))
    correlations: Tensor = (u * v).sum(dim=1) / (u.norm(dim=1) * v.norm(dim=1))
    is_finite = (a.isfinite() & b.isfinite()).all(dim=1)
    return correlations.clamp(-1, 1).where(is_finite, torch.nan)


def _ranks(values: Tensor) -> Tensor:
    """(N, P) from 0: how many values of a row are smaller, and half of how many others are equal."""
    values = values.contiguous()
    ordered = values.sort(dim=1).values
    smaller, not_larger = (torch.searchsorted(ordered, values, right=right) for right in (False, True))
    return (smaller + not_larger - 1).double() / 2
