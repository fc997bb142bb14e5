"""The explorer as a server: a socket, who may connect, and uvicorn in a thread; until Ctrl-C, or while a program goes on."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bort.app._exit import at_exit, seconds_left
from bort.app._explorer import Explorer
from bort.app._listen import LOCAL, hosts, listen
from bort.data import default_root
from bort.subject import Images, Subject, of_models

if TYPE_CHECKING:
    import uvicorn
    from torch import Tensor

_ENDING_SECONDS: Final = 2.5  # that a calculation under way is waited for


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

    Example:
        >>> app.serve(subject.of_models(nets.create("lenet"), torch.rand(4, 1, 28, 28)))  # doctest: +SKIP
        http://localhost:8765/  (Ctrl-C ends it)
    """
    _require_packages()
    with listen(address, port) as listening:
        explorer = Explorer(subjects() if callable(subjects) else subjects, cache=_cache_folder())
        token = None if address in LOCAL else secrets.token_urlsafe(24)
        server = _ServerThread(_server(explorer, listening, address, token), listening)
        try:
            if token:
                say(
                    f"Everybody who reaches {address} and has this address can use the explorer and this machine's time."
                )
            say(f"{_link(listening, address, token)}  (Ctrl-C ends it)")  # from here on it does, with status 0
            server.wait()
        except KeyboardInterrupt:
            pass
        finally:
            server.end()
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
    multi_label: bool = False,
    port: int = 0,
) -> Exploration:
    """Show models in the explorer while the program goes on: the page is at the ``address`` of what is returned, which a
    notebook shows as a frame, until its ``close()``.

    ::

        page = bort.explore({"baseline": a, "bort": b}, images="photographs", size=224, mean=mean, std=std)

    Args:
        models, images, labels, size, mean, std, classes, multi_label: see :func:`bort.subject.of_models`.
        port: 0 takes any that is free.

    Example:
        >>> page = bort.explore(nets.create("lenet"), torch.rand(4, 1, 28, 28))
        >>> page
        <explorer at http://localhost:.../>
        >>> page.close()
    """
    _require_packages()
    subjects = of_models(
        models, images, labels=labels, size=size, mean=mean, std=std, classes=classes, multi_label=multi_label
    )
    return Exploration(Explorer(subjects, cache=_cache_folder()), port)


class Exploration:
    """An explorer that runs in a thread of its own.

    Example:
        >>> with bort.explore(nets.create("lenet"), torch.rand(4, 1, 28, 28)) as page:
        ...     page.address
        'http://localhost:.../'
    """

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        self._explorer: Explorer | None = explorer
        listening = listen(LOCAL[0], port)
        self.address = _link(listening, LOCAL[0], None)
        """To open in a browser of this machine."""
        self._server = _ServerThread(_server(explorer, listening, LOCAL[0], None, in_frames=True), listening)

    def close(self) -> None:
        """End the server and let go of the models. Calling it again does nothing."""
        self._server.end()
        if (explorer := self._explorer) is not None:
            self._explorer = None
            explorer.close()

    def __enter__(self) -> Exploration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<explorer at {self.address}{', closed' if self._server.ended else ''}>"

    def _repr_html_(self) -> str:
        link = escape(self.address)
        if self._server.ended:
            return f"<p>The explorer at {link} is closed.</p>"
        return (
            f'<a href="{link}" target="_blank">{link}</a>'
            f'<iframe src="{link}" width="100%" height="900" style="border: 0" title="explorer"></iframe>'
        )


def _cache_folder() -> Path:
    """Where what is computed of a whole test set is kept."""
    return default_root() / "explorer"


class _ServerThread:
    """uvicorn in a thread. The threads that answer requests are started by it and are daemons as it is, so that a program can
    end while one of them computes."""

    def __init__(self, server: uvicorn.Server, listening: socket.socket) -> None:
        self._server: uvicorn.Server | None = server  # None when it has been ended: it holds the networks
        self._listening = listening
        # Not Thread.join: a Ctrl-C in it marks the thread as ended while it still runs (Python 3.11 and 3.12).
        self._finished = threading.Event()
        threading.Thread(target=self._run, args=(server,), name="bort-explorer", daemon=True).start()
        while not server.started and not self._finished.wait(0.01):
            pass
        at_exit(self.end)

    @property
    def ended(self) -> bool:
        return self._server is None

    def wait(self) -> None:
        while not self._finished.wait(1.0):  # without a limit, Ctrl-C would not be noticed on Windows
            pass

    def end(self) -> None:
        """The port is free at once. A calculation that takes long goes on and ends by itself."""
        if self._server is None:
            return
        self._server.should_exit = True
        self._finished.wait(min(_ENDING_SECONDS, seconds_left()))
        self._listening.close()
        self._server = None

    def _run(self, server: uvicorn.Server) -> None:
        try:
            server.run([self._listening])
        finally:
            self._finished.set()


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
    from bort.app._access import Access
    from bort.app._connections import server_of
    from bort.app._server import create

    # While the browser loads the page.
    threading.Thread(target=explorer.prepare, name="bort-prepare", daemon=True).start()
    access = Access(hosts(address, listening.getsockname()[1]), token, in_frames=in_frames)
    return server_of(create(explorer, access))


def _link(listening: socket.socket, address: str, token: str | None) -> str:
    host = hosts(address, listening.getsockname()[1])[0]
    return f"http://{host}/{f'?token={token}' if token else ''}"
