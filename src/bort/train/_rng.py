"""Random numbers from keys, such as (seed, "order", epoch): they depend on what they are for and not on what was drawn
before, so a training that is interrupted goes on exactly."""

from __future__ import annotations

import hashlib


def seed_of(*key: int | str) -> int:
    """A seed of 63 bits for a key such as (seed, "order", epoch)."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
