"""SIGINT and SIGTERM ask a training to stop after the step under way; a second one ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """A signal stopped the training after it had written a checkpoint, or before its first step. Start it again to go on.

    Example:
        >>> import signal
        >>> print(train.Interrupted(signal.SIGINT, 12, "runs/first"))
        stopped by SIGINT at step 12, with a checkpoint in runs/first. The same command goes on from there.
        >>> train.Interrupted.EXIT_CODE  # of `bort train`
        75
    """

    EXIT_CODE = 75
    """EX_TEMPFAIL of sysexits.h: not done, not failed, worth another try."""

    def __init__(self, number: int, step: int, path: object = None) -> None:
        self.signal, self.step = signal.Signals(number) if number else None, step
        cause = self.signal.name if self.signal else "another process"
        where = f"at step {step}, with a checkpoint in {path}" if path else "while the images were decoded"
        super().__init__(f"stopped by {cause} {where}. The same command goes on from there.")


class StopRequest:
    """Whether a signal has asked the training to stop."""

    signal_number = 0
    """Of the signal; 0: none so far."""

    def __bool__(self) -> bool:
        return self.signal_number != 0


@contextmanager
def catching_signals() -> Iterator[StopRequest]:
    """Inside, the first SIGINT or SIGTERM only sets the request, and SIGHUP (the terminal was closed) is ignored."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # Python lets only the main thread set handlers
        return

    def set_request(number: int, frame: FrameType | None) -> None:
        if request:
            os._exit(128 + number)
        request.signal_number = number

    before = {number: signal.signal(number, set_request) for number in (signal.SIGINT, signal.SIGTERM)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
