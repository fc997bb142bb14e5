"""`bort serve`"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bort.cli._errors import exit_on_error


def serve(
    run: str,
    /,
    against: str | None = None,
    port: int = 8765,
    address: str = "127.0.0.1",
    device: str = "cpu",
    data_root: Path | None = None,
) -> None:
    """Open a run in the explorer, a local page; another run beside it.

    Args:
        run: the folder of a run, or package.module:function, which returns a bort.subject.Subject with a view.
        against: another run on the same data, such as the baseline.
        port: 0 takes any that is free.
        address: to listen at. Anything but this machine (127.0.0.1) needs the token that is printed.
        device: cpu, cuda, …
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
    """
    with exit_on_error("serve"):
        from bort import app
        from bort.subject import resolve_all

        runs = [run] if against is None else [run, against]
        subjects = partial(resolve_all, runs, device=device, data_root=data_root)  # read when the port is taken
        app.serve(subjects, address=address, port=port, say=partial(print, flush=True))
