"""Errors that a person can do something about end a command in one line, without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exit_on_error(command: str, *more: type[Exception]) -> Iterator[None]:
    """Inside, such an error ends the process with status 1 and "bort COMMAND: message". ``more`` are the command's own."""
    from bort.subject import Missing

    expected: tuple[type[Exception], ...] = (ImportError, OSError, RuntimeError, ValueError, Missing, *more)
    try:
        yield
    except BrokenPipeError:
        raise  # no error to be told of: nobody reads any more
    except expected as error:
        sys.exit(f"bort {command}: {error}")
