"""The standard output after its reader has gone away, as in `bort … | head`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def rich_console(**options: Any) -> Console:
    """Rich's console, which raises BrokenPipeError where rich itself would end the process with status 1."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Plain(**options)


def redirect_to_null() -> None:
    """Python flushes the standard output when it ends, and would exit with an error if it is closed."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError, AttributeError):
        pass  # the stream has no file descriptor, so there is nothing to redirect
