"""Every error is a sentence: which statuses there are, and which exceptions become them."""

from __future__ import annotations

from typing import Any, Final

import torch
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from bort.app._exceptions import Busy, Unknown
from bort.app._verbs import allowed
from bort.explain import Cancelled
from bort.report import Missing

_MESSAGE: Final = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}


def _described(words: str) -> dict[str, Any]:
    """As a plain schema: with a pydantic model, FastAPI would describe the errors of a PNG's address as PNGs."""
    return {"description": words, "content": {"application/json": {"schema": _MESSAGE}}}


ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: _described("This network or image does not allow it."),
    403: _described("Another site's page asked, or the token is missing."),
    404: _described("There is no such run, image, method or calculation."),
    422: _described("A parameter is missing or out of its bounds."),
    503: _described("Too much is being computed already."),
}
"""What every address may answer."""

OF_UPLOADS: Final[dict[int | str, dict[str, Any]]] = {
    408: _described("The file came too slowly."),
    413: _described("The file is too large."),
}
"""What uploads may answer besides."""

_STATUS: Final[dict[type[Exception], int]] = {
    Unknown: 404,
    Missing: 404,
    Busy: 503,
    Cancelled: 503,
    ValueError: 400,
    torch.OutOfMemoryError: 503,
}


def answer_errors(app: FastAPI) -> None:
    """Answer exceptions with their messages, never with tracebacks."""

    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        # A 405 must list all methods of its address (RFC 9110); Starlette lists those of the first route that it finds.
        headers = {"Allow": allowed(request.scope)} if error.status_code == 405 else error.headers
        return JSONResponse({"message": error.detail}, error.status_code, headers)

    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        parameter = ".".join(str(part) for part in first["loc"][1:])
        return JSONResponse({"message": f"{parameter}: {first['msg']}"}, status_code=422)

    async def left(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # goes nowhere: the client closed the connection before it had sent everything

    def failed(status: int) -> Any:
        async def handler(request: Request, error: Exception) -> JSONResponse:
            return JSONResponse({"message": str(error) or type(error).__name__}, status)

        return handler

    app.add_exception_handler(HTTPException, refused)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, invalid)  # type: ignore[arg-type]
    app.add_exception_handler(ClientDisconnect, left)  # type: ignore[arg-type]
    for kind, status in _STATUS.items():
        app.add_exception_handler(kind, failed(status))
