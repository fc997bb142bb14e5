"""`bort serve`"""

from __future__ import annotations

import secrets
import sys
import threading
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
        from bort.app._access import Guard
        from bort.app._listen import LOCAL, hosts, listen
        from bort.app._server import create
    except ImportError as error:
        sys.exit(f'bort serve needs a few more packages ({error.name}): pip install "bort[app]"')
    try:
        listening = listen(address, port)  # before the networks are read: a port in use is said at once
        explorer = Explorer([run] if against is None else [run, against], device, data_root)
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"bort serve: {error}")
    number = listening.getsockname()[1]
    names = hosts(address, number)
    token = None if address in LOCAL else secrets.token_urlsafe(24)
    if token:
        print(f"Everybody who reaches {address} and has this address can use the explorer and this machine's time.")
    print(f"http://{names[0]}/{f'?token={token}' if token else ''}  (Ctrl-C ends it)", flush=True)
    threading.Thread(target=explorer.prepare, daemon=True).start()  # while the browser is on its way
    config = uvicorn.Config(create(explorer, Guard(names, token)), log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listening])
