"""`bort serve`"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from bort.cli._errors import exit_on_error
from bort.cli._subject_options import SubjectOptions


def serve(
    run: str,
    /,
    against: str | None = None,
    port: int = 8765,
    address: str = "127.0.0.1",
    device: str = "cpu",
    data_root: Path | None = None,
    look: Annotated[SubjectOptions, tyro.conf.arg(name="")] = SubjectOptions(),  # noqa: B008
) -> None:
    """Open a run in the explorer, a local page; another run beside it.

    Args:
        run: the folder of a run; a network such as timm/resnet50; hf:FOLDER; or package.module:function, which returns a
            model.
        against: another run on the same data, such as the baseline, or another network.
        port: 0 takes any that is free.
        address: to listen at. Anything but this machine (127.0.0.1) needs the token that is printed.
        device: cpu, cuda, …
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
        look: what a network without a run does not say of itself.
    """
    with exit_on_error("serve"), _ended_by_signals():
        from bort import app
        from bort.subject import resolve_all

        runs = [run] if against is None else [run, against]
        # Read when the port is taken.
        subjects = partial(resolve_all, runs, look.details(runs), device=device, data_root=data_root)
        app.serve(subjects, address=address, port=port, say=partial(print, flush=True))


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Inside, SIGTERM does what Ctrl-C does. Ending the explorer by one of them is no failure, status 0; ending it while it
    starts, or a second one while it ends, is status 130, as shells have it."""
    before, status = signal.signal(signal.SIGTERM, signal.default_int_handler), 0
    try:
        yield
    except KeyboardInterrupt:
        status = 130
    finally:
        signal.signal(signal.SIGTERM, before)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.flush()
    if len(threading.enumerate()) > 1:
        # A calculation goes on, in which torch may crash when the interpreter is taken down around it.
        os._exit(status)
    sys.exit(status)
