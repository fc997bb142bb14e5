"""Which requests are answered: those of pages that the server served itself, and only with the token where one is set."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bort.app._refusal import refuse

Next = Callable[[Request], Awaitable[Response]]

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
_LOCAL_FRAMES: Final = "frame-ancestors http://localhost:* http://127.0.0.1:*"
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Access:
    """Middleware that checks Host, Origin and token of every request, and sets the security headers of every answer.

    A page of another site can make a browser send us any request. It cannot choose the Host header (a name that leads here by
    DNS rebinding is not one of ours), and browsers put its own address into Origin.

    Args:
        hosts: the Host headers that are answered.
        token: needed in the first request's address, then in a cookie; None where only this machine can connect.
        in_frames: whether pages of this machine's other servers, as of Jupyter, may show the page in a frame.
    """

    def __init__(self, hosts: tuple[str, ...], token: str | None = None, *, in_frames: bool = False) -> None:
        self._hosts, self._token = frozenset(hosts), token
        self._headers = dict(_HEADERS)
        if in_frames:
            del self._headers["X-Frame-Options"]  # which knows no addresses
            self._headers["Content-Security-Policy"] = _POLICY.replace("frame-ancestors 'none'", _LOCAL_FRAMES)

    @property
    def needs_token(self) -> bool:
        return self._token is not None

    async def __call__(self, request: Request, call_next: Next) -> Response:
        refused = self._refused(request)
        response: Response
        if refused is not None:
            response = refused
        else:
            try:
                response = await call_next(request)
            except Exception as error:  # an error of our own: the message goes to the page, the traceback to the log
                logging.getLogger("bort.app").exception("%s %s", request.method, request.url.path)
                response = JSONResponse({"message": str(error) or type(error).__name__}, status_code=500)
        for name, value in self._headers.items():
            response.headers.setdefault(name, value)
        if refused is None and self._token and request.query_params.get("token"):
            response.set_cookie(self._cookie(request), self._token, httponly=True, samesite="lax")
        return response

    @staticmethod
    def _cookie(request: Request) -> str:
        """Its name. Browsers store cookies by host, whatever the port: two servers of one machine need two names."""
        return f"token-{request.url.port or 80}"

    def _refused(self, request: Request) -> Response | None:
        """The refusal of the request; None if it is answered."""
        host = request.headers.get("host", "").lower()
        if host not in self._hosts:
            return refuse(request, f"This server is not called {host!r}. Open the address that it printed.")
        origin = request.headers.get("origin")
        if origin is not None and origin.lower().removeprefix("http://") not in self._hosts:
            return refuse(request, f"Requests from {origin!r} are not taken.")
        # A link on another site may lead to the page itself, but nothing else may be loaded from there.
        is_link = request.url.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_link:
            return refuse(request, "Requests from pages of other sites are not taken.")
        if self._token is None:
            return None
        given = request.query_params.get("token") or request.cookies.get(self._cookie(request)) or ""
        # As bytes: of strings, compare_digest takes ASCII only and raises at others.
        if hmac.compare_digest(given.encode(), self._token.encode()):
            return None
        wrong = "That is not the token. " if given else ""
        needed = "The explorer needs its token: what follows “token=” in the address that bort serve printed."
        return refuse(request, wrong + needed, asks_for_token=True)
