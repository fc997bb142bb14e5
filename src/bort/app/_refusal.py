"""How a request is refused: with a sentence as JSON, and to a person who opens the page with one in HTML."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

_CSS: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #22272e; --line: #8a929c; --accent: #0b62a8; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e6e8eb; --line: #6d7681; --accent: #6fb7f2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 34rem; margin: 12vh auto 0; padding: 0 1.2rem; }
h1 { font-size: 1.15rem; }
form { display: flex; flex-wrap: wrap; gap: .6rem; align-items: end; }
label { display: grid; gap: .2rem; flex: 1 1 14rem; }
input, button { font: inherit; color: inherit; background: none; border: 1px solid var(--line); border-radius: .5rem;
  padding: .4rem .7rem; min-width: 0; }
button { cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
"""
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_CSS.encode()).digest()).decode()}'; img-src data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""Its one style sheet, and a form that is sent to this server alone."""


def refuse(request: Request, message: str, *, asks_for_token: bool = False) -> Response:
    """An answer 403. ``asks_for_token``: the page has a field for it, which opens the address that was asked for."""
    is_page = request.url.path == "/" and "text/html" in request.headers.get("accept", "")
    if not is_page:
        return JSONResponse({"message": message}, status_code=403)
    form = _form(request) if asks_for_token else ""
    return HTMLResponse(_page(message, form), status_code=403, headers={"Content-Security-Policy": _POLICY})


def _page(message: str, form: str) -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>bort explorer</title><link rel="icon" href="data:,"><style>{_CSS}</style></head>
<body><main><h1>bort explorer</h1><p>{escape(message)}</p>{form}</main></body></html>
"""


def _form(request: Request) -> str:
    """Sent by GET, which replaces the address's parameters by the form's: the view's are hidden fields."""
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in request.query_params.multi_items()
        if name != "token"
    )
    field = '<input name="token" type="password" autocomplete="off" required autofocus>'
    return f'<form method="get" action="/">{hidden}<label>Token {field}</label><button>Open</button></form>'
