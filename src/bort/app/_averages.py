"""Numbers of many images, computed in the background while the page shows one."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from bort.app._exceptions import Busy
from bort.app._exit import at_exit, seconds_left
from bort.app._lock import ComputeLock
from bort.explain import Cancelled

_LONGEST: Final = 0.5  # seconds for a part: a click may have to wait for one

Part = Callable[[], AbstractContextManager[None]]
"""What an image's numbers are computed inside of, in parts: between two of them pages' questions come first."""
Compute = Callable[[int, Part], Any]
"""The numbers of the n-th image."""


class TooSlow(Exception):
    """A part took so long that clicks would notice."""


@dataclass
class Numbers:
    """What is known of a question: the numbers of the first images."""

    compute: Compute = field(repr=False)
    count: int
    values: list[Any] = field(default_factory=list)
    is_given_up: bool = False

    @property
    def is_done(self) -> bool:
        return len(self.values) == self.count

    @property
    def is_open(self) -> bool:
        return not self.is_given_up and not self.is_done


class Averages:
    """One image after another, the newest question first; earlier ones are kept and can be gone on with.

    A question is given up where it fails, or where a part of it takes so long that clicks would notice.

    Args:
        lock: under which networks compute.
        size: how many questions are remembered.
        longest: the seconds that a part may take. The first image may take longer: it may have much to load. Where parts are
            known to take longer (:meth:`allows`), nobody should ask.
    """

    def __init__(self, lock: ComputeLock, size: int = 32, longest: float = _LONGEST) -> None:
        self._compute_lock, self._size, self._longest = lock, size, longest
        self._lock = threading.Lock()
        self._questions: OrderedDict[Hashable, Numbers] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._closed = False
        at_exit(self.close)

    def allows(self, seconds: float) -> bool:
        """Whether parts that take so long are worth starting."""
        return seconds <= self._longest

    def ask(self, key: Hashable, compute: Compute, count: int) -> Numbers:
        """What is known of this question by now; what is missing is computed next."""
        with self._lock:
            numbers = self._questions.setdefault(key, Numbers(compute, count))
            self._questions.move_to_end(key)
            while len(self._questions) > self._size:
                self._questions.popitem(last=False)
            if numbers.is_open and self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, name="bort-averages", daemon=True)
                self._thread.start()
            return numbers

    def close(self) -> None:
        """Stop after the image that is being computed."""
        with self._lock:
            self._closed, thread = True, self._thread
        if thread is not None:
            thread.join(timeout=seconds_left())
        with self._lock:
            self._questions.clear()  # they hold images

    def _next(self) -> Numbers | None:
        """The newest question, if it is open. Older ones wait until they are asked again."""
        with self._lock:
            newest = next(reversed(self._questions.values()), None)
            if newest is not None and newest.is_open and not self._closed:
                return newest
            self._thread = None
            return None

    def _work(self) -> None:
        while (numbers := self._next()) is not None:
            part = partial(self._part, may_be_slow=not numbers.values)
            try:
                numbers.values.append(numbers.compute(len(numbers.values), part))
            except (Busy, Cancelled):
                continue
            except Exception:  # the page says why, when it asks for the same of its image
                numbers.is_given_up = True

    @contextmanager
    def _part(self, *, may_be_slow: bool) -> Iterator[None]:
        self._compute_lock.give_way(lambda: self._closed)
        with self._compute_lock:
            started = time.monotonic()
            yield
            seconds = time.monotonic() - started
        if seconds > self._longest and not may_be_slow:
            raise TooSlow
