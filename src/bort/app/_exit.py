"""What is to be done before Python is taken down around threads that compute.

They are daemons, so that a program can end while they compute. But a thread that is inside torch at that moment aborts the
process ("terminate called without an active exception"): when torch takes the interpreter's lock again, Python ends the
thread, through C++ code that cannot be left in this way. So these threads are stopped and waited for, each for at most
`LONGEST_END` seconds: one that is still inside torch then can abort the process.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import Final

LONGEST_END: Final = 10.0
"""Seconds for which the end of the program waits for a calculation."""


def at_exit(method: Callable[[], object]) -> None:
    """Have a method called when the program ends, if its object still exists. Those named last are called first."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        if (found := reference()) is not None:
            found()

    atexit.register(call)
