"""What is normally decided by an estimate or a trial, and can be fixed: for measurements, and for tests of every route."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Routing:
    own: bool | None = None
    """DTensors. True: every weight goes to an owner; False: only those that must; None: as estimated to be fastest."""
    share: bool | None = None
    """``shard=True`` under DDP. True: the penalties are shared out; False: each rank computes all; None: as a trial finds."""
    bucket_bytes: int = 64 * 2**20
    """What a round moves at most."""
    overlap_bytes: int = 0
    """DTensors, decoupled: exchanges of so many bytes are begun when a step has ended, for the next one. 0, until it has been
    measured that it is faster: none."""


_current: ContextVar[Routing] = ContextVar("bort_routing", default=Routing())  # noqa: B039, frozen


def current_routing() -> Routing:
    return _current.get()


@contextlib.contextmanager
def routing(
    *,
    own: bool | None = None,
    share: bool | None = None,
    bucket_bytes: int | None = None,
    overlap_bytes: int | None = None,
) -> Iterator[None]:
    """Fix how weights are computed, for the steps inside the block; what is None stays as it was outside.

    All ranks have to fix the same. For DTensors it applies to plans that are made inside the block: at the first step of an
    optimizer, or when its weights or settings have changed.
    """
    outer = _current.get()
    token = _current.set(
        replace(
            outer,
            own=outer.own if own is None else own,
            share=outer.share if share is None else share,
            bucket_bytes=outer.bucket_bytes if bucket_bytes is None else bucket_bytes,
            overlap_bytes=outer.overlap_bytes if overlap_bytes is None else overlap_bytes,
        )
    )
    try:
        yield
    finally:
        _current.reset(token)
