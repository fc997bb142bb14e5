"""The explorer as a server: a socket, who may connect, and uvicorn; until Ctrl-C, or in a thread of its own."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bort.app._explorer import Explorer
from bort.app._listen import LOCAL, hosts, listen
from bort.data import default_root
from bort.subject import Images, Subject, of_models

if TYPE_CHECKING:
    import uvicorn
    from torch import Tensor


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
    _require_packages()
    with listen(address, port) as listening:
        explorer = Explorer(subjects() if callable(subjects) else subjects, cache=_cache_folder())
        token = None if address in LOCAL else secrets.token_urlsafe(24)
        server = _server(explorer, listening, address, token)
        if token:
            say(f"Everybody who reaches {address} and has this address can use the explorer and this machine's time.")
        say(f"{_link(listening, address, token)}  (Ctrl-C ends it)")
        try:
            server.run(sockets=[listening])
        finally:
            explorer.close()


def explore(
    models: Mapping[str, Any] | Any,
    images: Images | None = None,
    *,
    labels: Sequence[int] | Tensor | None = None,
    size: int | tuple[int, int] | None = None,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    classes: Sequence[str] = (),
    port: int = 0,
) -> Exploration:
    """Show models in the explorer while the program goes on: the page is at the ``address`` of what is returned, which a
    notebook shows as a frame, until its ``close()``.

    ::

        page = bort.explore({"baseline": a, "bort": b}, images="photographs", size=224, mean=mean, std=std)

    Args:
        models, images, labels, size, mean, std, classes: see :func:`bort.subject.of_models`.
        port: 0 takes any that is free.
    """
    _require_packages()
    subjects = of_models(models, images, labels=labels, size=size, mean=mean, std=std, classes=classes)
    return Exploration(Explorer(subjects, cache=_cache_folder()), port)


class Exploration:
    """An explorer that runs in a thread of its own."""

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        self._listening, self._explorer = listen(LOCAL[0], port), explorer
        self.address = _link(self._listening, LOCAL[0], None)
        """To open in a browser of this machine."""
        self._server = _server(explorer, self._listening, LOCAL[0], None, in_frames=True)
        self._thread = threading.Thread(target=self._server.run, args=([self._listening],), daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)

    def close(self) -> None:
        """End the server. Calling it again does nothing."""
        self._server.should_exit = True
        self._thread.join()
        self._explorer.close()
        self._listening.close()

    def __enter__(self) -> Exploration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<explorer at {self.address}{'' if self._thread.is_alive() else ', closed'}>"

    def _repr_html_(self) -> str:
        link = escape(self.address)
        if not self._thread.is_alive():
            return f"<p>The explorer at {link} is closed.</p>"
        return (
            f'<a href="{link}" target="_blank">{link}</a>'
            f'<iframe src="{link}" width="100%" height="900" style="border: 0" title="explorer"></iframe>'
        )


def _cache_folder() -> Path:
    """Where what is computed of a whole test set is kept."""
    return default_root() / "explorer"


def _require_packages() -> None:
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'the explorer needs a few more packages ({error.name}): pip install "bort[app]"', name=error.name
        ) from error


def _server(
    explorer: Explorer, listening: socket.socket, address: str, token: str | None, *, in_frames: bool = False
) -> uvicorn.Server:
    import uvicorn

    from bort.app._access import Access
    from bort.app._server import create

    threading.Thread(target=explorer.prepare, daemon=True).start()  # while the browser loads the page
    access = Access(hosts(address, listening.getsockname()[1]), token, in_frames=in_frames)
    return uvicorn.Server(uvicorn.Config(create(explorer, access), log_level="warning", timeout_graceful_shutdown=2))


def _link(listening: socket.socket, address: str, token: str | None) -> str:
    host = hosts(address, listening.getsockname()[1])[0]
    return f"http://{host}/{f'?token={token}' if token else ''}"
