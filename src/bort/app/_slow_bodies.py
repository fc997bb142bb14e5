"""Requests whose body comes too slowly."""

from __future__ import annotations

from typing import Final

import anyio
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PIECE: Final = 160 * 1024
PIECE_SECONDS: Final = 10.0
"""In which each PIECE of a body must come, 16 kB/s: a client that stops sending is given up, however much it has sent."""
_TOO_SLOW: Final = "The request came too slowly and was given up; try again."


class SlowBodies:
    """ASGI middleware: a request whose body comes too slowly is answered 408, and its connection is closed."""

    piece_seconds = PIECE_SECONDS

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = _TimedRequest(scope, receive, send, self.piece_seconds)
            receive, send = request.receive, request.send
        await self._app(scope, receive, send)


class _TimedRequest:
    """Where an application receives a body from and sends the answer to."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, seconds: float) -> None:
        self._scope, self._receive, self._send, self._seconds = scope, receive, send, seconds
        self._until: float | None = None  # set when the application first asks for the body
        self._piece = 0  # bytes of the present one
        self._is_waited_for, self._is_refused = True, False

    async def receive(self) -> Message:
        if not self._is_waited_for:
            return await self._receive()  # until the client is gone
        message: Message | None = None
        if self._until is None:
            self._until = anyio.current_time() + self._seconds
        with anyio.move_on_after(self._until - anyio.current_time()):
            message = await self._receive()
        if message is None:
            await self._refuse()
            return {"type": "http.disconnect"}
        self._is_waited_for = message.get("more_body", False)
        self._piece += len(message.get("body", b""))
        if self._piece >= PIECE:
            self._piece, self._until = 0, anyio.current_time() + self._seconds
        return message

    async def send(self, message: Message) -> None:
        if not self._is_refused:  # what the application says of its lost client goes nowhere
            await self._send(message)

    async def _refuse(self) -> None:
        self._is_waited_for, self._is_refused = False, True
        answer = JSONResponse({"message": _TOO_SLOW}, 408, {"Connection": "close"})
        await answer(self._scope, self._receive, self._send)
