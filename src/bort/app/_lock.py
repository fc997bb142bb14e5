"""One calculation at a time: hooks and modes that one thread sets on a network would be met by another's passes."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

from bort.app._exceptions import Busy

_LONGEST_END: Final = 10.0
"""Seconds for which the end of the program waits for the calculation under way."""


class ComputeLock:
    """A lock whose holder may take it again, and for which others wait a limited time: then they are told to try again."""

    def __init__(self, seconds: float = 30.0) -> None:
        self._lock = threading.RLock()
        self._count_lock, self._users = threading.Lock(), 0
        self._last = 0, 0.0  # the thread that had it last, and when it gave it back
        self.seconds = seconds
        """How long anybody waits for it."""

    def __enter__(self) -> None:
        self._count(1)
        if not self._lock.acquire(timeout=self.seconds):
            self._count(-1)
            raise Busy(f"Other calculations have taken more than {self.seconds:.0f} seconds; try again in a moment.")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._last = threading.get_ident(), time.monotonic()
        self._lock.release()
        self._count(-1)

    def keep(self) -> None:
        """Take it for good, when the program ends: then nobody computes any more. Whoever computes is waited for, but not for
        long."""
        self._lock.acquire(timeout=_LONGEST_END)

    def is_quiet(self, seconds: float) -> bool:
        """Whether nobody has or wants the lock, and no other thread has had it for so long: somebody who has just clicked
        will click again."""
        thread, at = self._last
        return not self._users and (thread == threading.get_ident() or time.monotonic() - at >= seconds)

    def give_way(self) -> None:
        """Wait until nobody has or wants the lock. Work in the background does so before each of its parts: a thread that
        releases a lock and takes it again at once leaves others waiting."""
        while self._users:
            time.sleep(0.002)

    def _count(self, change: int) -> None:
        with self._count_lock:
            self._users += change
