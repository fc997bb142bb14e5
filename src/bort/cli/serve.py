"""`bort serve`"""

from __future__ import annotations

import secrets
import socket
import sys
from pathlib import Path


def serve(
    run: Path,
    /,
    against: Path | None = None,
    port: int = 8765,
    address: str = "127.0.0.1",
    device: str = "cpu",
    data_root: Path | None = None,
) -> None:
    """Open a run in the explorer, a local page; another run beside it.

    Args:
        run: the folder of a run.
        against: another run on the same data, such as the baseline.
        port: 0 takes any that is free.
        address: to listen at. Anything but this machine (127.0.0.1) needs the token that is printed.
        device: cpu, cuda, …
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
    """
    try:
        import uvicorn

        from bort.app._explorer import Explorer
        from bort.app._guard import Guard
        from bort.app._server import create
    except ImportError as error:
        sys.exit(f'bort serve needs a few more packages ({error.name}): pip install "bort[app]"')
    try:
        explorer = Explorer([run] if against is None else [run, against], device, data_root)
        listening = socket.create_server((address, port))
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"bort serve: {error}")
    number = listening.getsockname()[1]
    local = address in ("127.0.0.1", "localhost")
    token = None if local else secrets.token_urlsafe(24)
    names = {"127.0.0.1", "localhost", address} | (set() if local else {socket.gethostname()})
    page = f"http://{'localhost' if local else address}:{number}/" + (f"?token={token}" if token else "")
    if token:
        print(f"Everybody who reaches {address} and has this address can use the explorer and this machine's time.")
    print(f"{page}  (Ctrl-C ends it)", flush=True)
    guard = Guard(tuple(f"{name}:{number}" for name in names), token)
    config = uvicorn.Config(create(explorer, guard), log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listening])
