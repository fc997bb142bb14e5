"""HEAD and OPTIONS, which programs send to look before they load. FastAPI's addresses know only the method that they name."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def allowed(scope: Scope) -> str:
    """The methods of a request's address, as the header Allow lists them; empty if there is no such address."""
    routes = scope["app"].routes
    methods = {
        method
        for method in ("DELETE", "GET", "POST")
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    }
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(sorted(methods | {"OPTIONS"})) if methods else ""


class Verbs:
    """ASGI middleware: HEAD is answered as GET is, without the body; OPTIONS with the methods of the address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_head(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        method = scope.get("method")
        if method == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, send_head)
        elif method == "OPTIONS" and (methods := allowed(scope)):
            await Response(status_code=204, headers={"Allow": methods})(scope, receive, send)
        else:
            await self._app(scope, receive, send)
