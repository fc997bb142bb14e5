"""Random numbers from keys, such as (seed, "order", epoch): they depend on what they are for and not on what was drawn
before, so a training that is interrupted goes on exactly."""

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
    """Seed the global generators of Python, numpy and torch (CPU). timm's augmentations draw from all three."""
    import numpy as np

    seed = seed_of(*key)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002, timm's
    torch.default_generator.manual_seed(seed)


@contextmanager
def seeded(*key: int | str) -> Iterator[None]:
    """Inside, the global generators are seeded by the key; afterwards they are in the state they had before.

    With this, image 17 of epoch 3 is augmented alike in any process and at any time. A worker process that only reads images
    calls `seed_all` instead: nothing else draws there, and restoring three states would be work for each image.
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
