"""One at a time: networks are not made for two threads, and nobody waits for ever."""

from __future__ import annotations

import threading
from types import TracebackType


class Busy(Exception):
    """Too much is being computed already."""


class Turn:
    """A lock whose holder may take it again, and for which others wait a limited time."""

    def __init__(self, seconds: float = 30.0) -> None:
        self._lock, self._seconds = threading.RLock(), seconds

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._seconds):
            raise Busy(f"Other calculations have taken more than {self._seconds:.0f} seconds; try again in a moment.")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()
