"""What is to be done before Python is taken down around threads that compute.

They are daemons, so that a program can end while they compute. But a thread that is inside torch at that moment aborts the
process ("terminate called without an active exception"): when torch takes the interpreter's lock again, Python ends the
thread, through C++ code that cannot be left in this way. So these threads are stopped and waited for, for `LONGEST_END`
seconds in all: one that is still inside torch then can abort the process.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from typing import Any, Final

LONGEST_END: Final = 10.0
"""Seconds for which the end of the program waits for calculations, for all of them together."""
LONGEST_CLOSE: Final = 5.0
"""Seconds for which closing an explorer waits for a calculation in a program that goes on, and whose end waits again."""

_methods: list[weakref.WeakMethod[Any]] = []
_lock = threading.Lock()  # of the list
_until: float | None = None  # when the end of the program stops waiting


def at_exit(method: Callable[[], object]) -> None:
    """Have a method called when the program ends, if its object still exists. Those named last are called first."""
    global _methods
    with _lock:  # a new list: the end of the program may be going through the old one
        _methods = [*(other for other in _methods if other() is not None), weakref.WeakMethod(method)]
    atexit.unregister(_end)
    atexit.register(_end)  # so it is called before what was registered earlier


def seconds_left() -> float:
    """How long to wait for a calculation that has been stopped."""
    return LONGEST_CLOSE if _until is None else max(0.0, _until - time.monotonic())


def _end() -> None:
    global _until
    _until = time.monotonic() + LONGEST_END
    try:
        for reference in reversed(_methods):
            if (method := reference()) is not None:
                _call(method)
    except KeyboardInterrupt:  # somebody does not want to wait
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)  # as shells have it; the interpreter is not taken down around the threads that still compute


def _call(method: Callable[[], object]) -> None:
    """One that fails must not keep the others from being called."""
    try:
        method()
    except Exception:
        traceback.print_exc()
