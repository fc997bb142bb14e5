"""Chance that depends on what it is for, not on what came before: the key to exact resumption."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seed_of(*key: int | str) -> int:
    """A seed of 63 bits for a key such as (seed, "order", epoch)."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def seed_all(*key: int | str) -> None:
    """Seed the global generators of Python, numpy and torch's CPU, from all of which timm's augmentations draw."""
    import numpy as np

    seed = seed_of(*key)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002, timm's
    torch.default_generator.manual_seed(seed)


@contextmanager
def seeded(*key: int | str) -> Iterator[None]:
    """Inside, the global generators are seeded by the key; outside they go on as before.

    With this, image 17 of epoch 3 looks the same whoever prepares it, and whenever. Where nobody else draws from them, in a
    process that only reads images, `seed_all` is enough: keeping and putting back three states is work for each image.
    """
    import numpy as np

    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        seed_all(*key)
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
