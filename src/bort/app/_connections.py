"""A connection over which no request comes is closed, and so is every one when the server ends."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS: Final = 10.0
"""In which the header of a request must have come; uvicorn itself waits without end. Bodies: see `_slow_bodies`."""
ENDING_SECONDS: Final = 1.0
"""After which connections are cut when the server ends, whether or not they have sent and received everything."""


class Connection(H11Protocol):
    """uvicorn's protocol, with a timer that runs while the client is to send and no request is being answered."""

    request_seconds = REQUEST_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(ENDING_SECONDS, self.transport.abort)

    def _set_timer(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering:
            self._stop_timer()
        elif self._timer is None:  # not set anew by each byte that comes
            self._timer = self.loop.call_later(self.request_seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def server_of(app: ASGIApp) -> uvicorn.Server:
    """Of HTTP over such connections. Answers that are under way when it ends are waited for."""
    return uvicorn.Server(uvicorn.Config(app, http=Connection, log_level="warning"))
