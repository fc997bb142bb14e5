"""SIGINT and SIGTERM ask a training to stop at the next step; asked twice, it leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """A signal stopped the training after it had written a checkpoint. Start it again to go on."""

    EXIT_CODE = 75
    """EX_TEMPFAIL of sysexits.h: not done, not failed, worth another try."""

    def __init__(self, number: int, step: int, path: object) -> None:
        self.signal, self.step = signal.Signals(number) if number else None, step
        why = self.signal.name if self.signal else "another process"
        super().__init__(
            f"stopped by {why} at step {step}, with a checkpoint in {path}. The same command goes on from there."
        )


class Request:
    """What has been asked for so far: 0, or the number of a signal."""

    number = 0


@contextmanager
def watched() -> Iterator[Request]:
    """Inside, the first SIGINT or SIGTERM is only noted, and a terminal that goes away (SIGHUP) does not matter."""
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may set handlers
        return

    def note(number: int, frame: FrameType | None) -> None:
        if request.number:
            os._exit(128 + number)
        request.number = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
