"""The explorer as a server: a socket, who may connect, and uvicorn."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence

from bort.app._explorer import Explorer
from bort.app._listen import LOCAL, hosts, listen
from bort.subject import Subject


def serve(
    subjects: Sequence[Subject] | Callable[[], Sequence[Subject]],
    *,
    address: str = "127.0.0.1",
    port: int = 8765,
    say: Callable[[str], None] = print,
) -> None:
    """Show subjects in the explorer until Ctrl-C.

    Args:
        subjects: networks that see the same images, see :func:`bort.subject.resolve_all`; or a function that returns them,
            which is called when the port is taken: a port in use is an error before networks are read.
        address: to listen at. Anything but this machine (127.0.0.1) needs the token in the address that is printed.
        port: 0 takes any that is free.
        say: called with the lines for the person who started it: the address to open.
    """
    try:
        import uvicorn

        from bort.app._access import Access
        from bort.app._server import create
    except ImportError as error:
        raise ImportError(
            f'the explorer needs a few more packages ({error.name}): pip install "bort[app]"', name=error.name
        ) from error
    with listen(address, port) as listening:
        explorer = Explorer(subjects() if callable(subjects) else subjects)
        names = hosts(address, listening.getsockname()[1])
        token = None if address in LOCAL else secrets.token_urlsafe(24)
        if token:
            say(f"Everybody who reaches {address} and has this address can use the explorer and this machine's time.")
        say(f"http://{names[0]}/{f'?token={token}' if token else ''}  (Ctrl-C ends it)")
        threading.Thread(target=explorer.prepare, daemon=True).start()  # while the browser loads the page
        app = create(explorer, Access(names, token))
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
        uvicorn.Server(config).run(sockets=[listening])
