"""Slow work beside the page: a bounded queue, one worker, progress, cancelling, and a limit of time."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from bort.app._lock import Busy
from bort.explain import Cancelled, Progress

GONE: Final = 90.0
"""A page that has not asked for so many seconds is closed. Browsers let pages in the background ask once a minute."""
State = Literal["waiting", "running", "done", "failed", "cancelled"]
Work = Callable[[Progress], Any]
"""Keeps its result itself."""


@dataclass
class Job:
    key: str
    """What it computes: asked for twice, it is done once."""
    work: Work = field(repr=False)
    name: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    state: State = "waiting"
    done: int = 0
    total: int = 0
    message: str = ""
    pages: dict[str, float] = field(default_factory=dict, repr=False)
    """Those that wait for it, and when each has last asked."""
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    finished: threading.Event = field(default_factory=threading.Event, repr=False)


class Jobs:
    """A worker thread and the jobs it has to do; what came of the last ``keep`` is remembered."""

    def __init__(self, waiting: int = 8, keep: int = 64, seconds: float = 300.0) -> None:
        self._waiting: deque[Job] = deque()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._most, self._keep, self._seconds = waiting, keep, seconds
        self._lock = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="bort-jobs", daemon=True)
        self._thread.start()

    def start(self, key: str, work: Work, page: str = "") -> Job:
        """The job of that key: the one there is, unless it failed or was cancelled, or a new one. Busy if too many wait."""
        with self._lock:
            for job in self._jobs.values():
                if job.key == key and job.state in ("waiting", "running", "done") and not job.cancelled.is_set():
                    job.pages[page] = time.monotonic()
                    return job
            if len(self._waiting) >= self._most:
                raise Busy(f"{self._most} calculations are waiting already; try again in a moment.")
            job = Job(key, work, pages={page: time.monotonic()})
            self._waiting.append(job)
            self._jobs[job.name] = job
            self._forget()
            self._lock.notify()
            return job

    def get(self, name: str, page: str = "") -> Job | None:
        with self._lock:
            job = self._jobs.get(name)
            if job is not None:
                job.pages[page] = time.monotonic()
            return job

    def cancel(self, name: str) -> Job | None:
        """Stop it, whoever waits for it."""
        with self._lock:
            return self._stop(self._jobs.get(name))

    def leave(self, name: str, page: str) -> Job | None:
        """This page waits for it no more; it is stopped if no other does."""
        with self._lock:
            job = self._jobs.get(name)
            if job is not None:
                job.pages.pop(page, None)
            return job if job is None or job.pages else self._stop(job)

    def _stop(self, job: Job | None) -> Job | None:
        if job is not None and job.state in ("waiting", "running"):
            job.cancelled.set()
            if job in self._waiting:  # it makes room at once
                self._waiting.remove(job)
                job.state = "cancelled"
                job.finished.set()
        return job

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for job in self._jobs.values():
                job.cancelled.set()
            self._lock.notify()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                job = self._waiting.popleft()
                job.state = "running"
            self._do(job)
            job.finished.set()

    def _do(self, job: Job) -> None:
        until = time.monotonic() + self._seconds

        def progress(done: int, total: int) -> None:
            job.done, job.total = done, total
            now = time.monotonic()
            with self._lock:
                forgotten = all(now - seen > GONE for seen in job.pages.values())
            if job.cancelled.is_set() or forgotten:
                raise Cancelled
            if time.monotonic() > until:
                raise TimeoutError(f"It took longer than {self._seconds:.0f} seconds and was stopped.")

        try:
            job.work(progress)
            job.state = "done"
        except Cancelled:
            job.state = "cancelled"
        except Exception as error:  # a message for the page, never a trace
            job.state, job.message = "failed", str(error) or type(error).__name__

    def _forget(self) -> None:
        ended = [name for name, job in self._jobs.items() if job.state not in ("waiting", "running")]
        for name in ended[: max(0, len(self._jobs) - self._keep)]:
            del self._jobs[name]
