"""The relative score of deletion and insertion: what it is divided by, and which images have none."""

from __future__ import annotations

import warnings
from typing import Final

import torch
from torch import Tensor

_SMALLEST_PART: Final = 0.05
"""Of its scale: a clean logit that is not larger is near 0. Relative scores would be of the order of 20 or more."""


def divisors_of(clean: Tensor, deleted: Tensor, classes: Tensor) -> Tensor:
    """(N, 1): the logits that relative scores are divided by, nan where there is no relative score. From the logits
    (N, classes) of the clean images and of those without any of their pixels."""
    logits, ends = (both.gather(1, classes[:, None]) for both in (clean, deleted))
    return torch.where(_has_no_relative(clean, logits, ends), torch.nan, logits)


def _has_no_relative(clean: Tensor, logits: Tensor, ends: Tensor) -> Tensor:
    """(N, 1): whether the clean image's logit is too small to divide by. Its scale is the spread of the image's logits, or
    how far the class's logit moves until all pixels are deleted (a head with one logit has no spread)."""
    spread = clean.amax(dim=1, keepdim=True) - clean.amin(dim=1, keepdim=True)
    return ~(logits > _SMALLEST_PART * torch.maximum(spread, (logits - ends).abs()))


def about_undefined(count: int, total: int) -> str:
    """What to say of images without a relative score."""
    return (
        f"{count} of {total} images have no relative score: the clean image's logit of their class, which it is divided by, "
        'is near 0 or negative. Use the score "logit" or "probability" for them'
    )


def warn_of_undefined(count: int, total: int) -> None:
    if count:
        warnings.warn(f"{about_undefined(count, total)}.", stacklevel=5)
