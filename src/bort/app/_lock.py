"""One calculation at a time: hooks and modes that one thread sets on a network would be met by another's passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from bort.app._exceptions import Busy
from bort.app._exit import seconds_left
from bort.explain import Cancelled


class ComputeLock:
    """A lock whose holder may take it again, and for which others wait a limited time: then they are told to try again."""

    def __init__(self, seconds: float = 30.0) -> None:
        self._lock = threading.RLock()
        self._holder, self._depth = 0, 0  # the thread that has it, and how many times
        self._ended = False
        self._count_lock, self._users = threading.Lock(), 0
        self._last = 0, 0.0  # the thread that had it last, and when it gave it back
        self.seconds = seconds
        """How long anybody waits for it."""

    def __enter__(self) -> None:
        self._count(1)
        if not self._take():
            self._count(-1)
            raise Busy(f"Other calculations have taken more than {self.seconds:.0f} seconds; try again in a moment.")
        self._holder, self._depth = threading.get_ident(), self._depth + 1

    def _take(self) -> bool:
        goes_on = self._holder == threading.get_ident()  # who has it may take it again even if the program ends
        if goes_on or not self._ended:
            if not self._lock.acquire(timeout=self.seconds):
                return False
            if goes_on or not self._ended:
                return True
            self._lock.release()
        time.sleep(self.seconds)  # until the program has ended
        return False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._last = threading.get_ident(), time.monotonic()
        self._depth -= 1
        if not self._depth:
            self._holder = 0
        self._lock.release()
        self._count(-1)

    def end(self) -> None:
        """Let nobody take it any more, because the program ends, and wait for whoever has it, but not for long."""
        self._ended = True
        self._count(1)
        self._lock.acquire(timeout=seconds_left())

    def is_quiet(self, seconds: float) -> bool:
        """Whether nobody has or wants the lock, and no other thread has had it for so long: somebody who has just clicked
        will click again."""
        thread, at = self._last
        return not self._users and (thread == threading.get_ident() or time.monotonic() - at >= seconds)

    def give_way(self, ended: Callable[[], bool], seconds: float = 0.0) -> None:
        """Wait until the lock is quiet, see :meth:`is_quiet`; raises Cancelled once it has ``ended``. Work in the background
        does so before each of its parts: a thread that releases a lock and takes it again at once leaves others waiting."""
        while not ended():
            if self.is_quiet(seconds):
                return
            time.sleep(0.002)
        raise Cancelled

    def _count(self, change: int) -> None:
        with self._count_lock:
            self._users += change
