"""Slow calculations in the background: a bounded queue, one worker thread, progress, cancelling, and a limit of time."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from bort.app._exceptions import Busy
from bort.app._exit import at_exit, seconds_left
from bort.explain import Cancelled, Progress

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Work = Callable[[Progress], Any]
"""Stores its result itself: the queue only says whether it is done."""


@dataclass
class Calculation:
    key: str
    """What it computes: the same key asked for twice is computed once."""
    work: Work = field(repr=False)
    name: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    state: State = "waiting"
    done: int = 0
    total: int = 0
    message: str = ""
    """Why it failed."""
    pages: dict[str, float] = field(default_factory=dict, repr=False)
    """The pages that wait for it, and when each has last asked."""
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    finished: threading.Event = field(default_factory=threading.Event, repr=False)


class Calculations:
    """The worker thread and its queue.

    Args:
        waiting: how many may wait; one more is refused with Busy.
        keep: of how many the outcome is remembered.
        seconds: after which a calculation is stopped.
        closed_after: seconds after which a page that has not asked counts as closed. Browsers let pages in the background ask
            once a minute.
    """

    def __init__(self, waiting: int = 8, keep: int = 64, seconds: float = 300.0, closed_after: float = 90.0) -> None:
        self._waiting: deque[Calculation] = deque()
        self._calculations: OrderedDict[str, Calculation] = OrderedDict()
        self._most_waiting, self._keep = waiting, keep
        self._seconds, self._closed_after = seconds, closed_after
        self._lock = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="bort-calculations", daemon=True)
        self._thread.start()
        at_exit(self.close)

    def start(self, key: str, work: Work, page: str = "") -> Calculation:
        """The calculation of that key: the present one, unless it failed or was cancelled, or a new one."""
        with self._lock:
            for calculation in self._calculations.values():
                is_good = calculation.state in ("waiting", "running", "done") and not calculation.cancelled.is_set()
                if calculation.key == key and is_good:
                    calculation.pages[page] = time.monotonic()
                    return calculation
            if len(self._waiting) >= self._most_waiting:
                raise Busy(f"{self._most_waiting} calculations are waiting already; try again in a moment.")
            calculation = Calculation(key, work, pages={page: time.monotonic()})
            self._waiting.append(calculation)
            self._calculations[calculation.name] = calculation
            self._forget()
            self._lock.notify()
            return calculation

    def get(self, name: str, page: str = "") -> Calculation | None:
        with self._lock:
            calculation = self._calculations.get(name)
            if calculation is not None and page in calculation.pages:  # a page that has left it may still be asking
                calculation.pages[page] = time.monotonic()
            return calculation

    def leave(self, name: str, page: str = "") -> Calculation | None:
        """This page no longer waits for it; it is stopped if no other page does."""
        with self._lock:
            calculation = self._calculations.get(name)
            if calculation is not None:
                calculation.pages.pop(page, None)
                if not calculation.pages:
                    self._stop(calculation)
            return calculation

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for calculation in self._calculations.values():
                calculation.cancelled.set()
            self._lock.notify()
        self._thread.join(timeout=seconds_left())

    def _stop(self, calculation: Calculation) -> None:
        if calculation.state in ("waiting", "running"):
            calculation.cancelled.set()
        if calculation in self._waiting:  # its place in the queue is free at once
            self._waiting.remove(calculation)
            calculation.state = "cancelled"
            calculation.finished.set()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                calculation = self._waiting.popleft()
                calculation.state = "running"
            self._compute(calculation)
            calculation.finished.set()

    def _compute(self, calculation: Calculation) -> None:
        until = time.monotonic() + self._seconds

        def progress(done: int, total: int) -> None:
            calculation.done, calculation.total = done, total
            now = time.monotonic()
            with self._lock:
                all_closed = all(now - asked > self._closed_after for asked in calculation.pages.values())
            if calculation.cancelled.is_set() or all_closed:
                raise Cancelled
            if now > until:
                raise TimeoutError(f"It took longer than {self._seconds:.0f} seconds and was stopped.")

        try:
            calculation.work(progress)
            calculation.done = calculation.total = max(1, calculation.total)
            calculation.state = "done"
        except Cancelled:
            calculation.state = "cancelled"
        except Exception as error:  # the page gets a message, never a traceback
            calculation.state, calculation.message = "failed", str(error) or type(error).__name__

    def _forget(self) -> None:
        ended = [name for name, c in self._calculations.items() if c.state not in ("waiting", "running")]
        for name in ended[: max(0, len(self._calculations) - self._keep)]:
            del self._calculations[name]
