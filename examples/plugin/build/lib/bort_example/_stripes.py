"""A data set: a function that returns a bort.data.Dataset, images as bytes."""

import torch
from torch import Tensor

from bort.data import Dataset


def stripes() -> Dataset:
    """``--data.name bort_example:stripes``: 16 × 16 pixels, stripes across or down, with noise."""
    images, labels = _draw(500, seed=0)
    test_images, test_labels = _draw(100, seed=1)
    return Dataset("stripes", images, labels, test_images, test_labels, "stripes 1.0", ("across", "down"))


def _draw(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    phase = torch.randint(4, (count, 1), generator=generator)
    line = ((torch.arange(16) + phase) % 4 < 2).float() * 160
    across, down = line[:, :, None].expand(-1, -1, 16), line[:, None, :].expand(-1, 16, -1)
    clean = torch.where(labels[:, None, None] == 0, across, down)
    noise = torch.randint(96, (count, 16, 16), generator=generator)
    return (clean + noise).to(torch.uint8)[:, None], labels
