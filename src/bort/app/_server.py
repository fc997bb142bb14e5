"""The explorer over HTTP: every question of the page is an address, every error a sentence."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Response
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware

from bort import __version__
from bort._colours import stylesheet
from bort.app import (
    _routes_audit,
    _routes_channel,
    _routes_draw,
    _routes_evidence,
    _routes_find,
    _routes_images,
    _routes_inside,
    _routes_story,
    _routes_uploads,
)
from bort.app._access import Access
from bort.app._calculations import Calculations
from bort.app._errors import ERRORS, answer_errors
from bort.app._explorer import Explorer
from bort.app._intake import Intake
from bort.app._slow_bodies import SlowBodies
from bort.app._stories import Stories
from bort.app._verbs import Verbs

_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


class Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Made anew each time: methods may have been registered since."""
        self.openapi_schema = None
        return super().openapi()


def create(explorer: Explorer, access: Access, calculations: Calculations | None = None) -> FastAPI:
    """The application. It opens the explorer's runs and nothing else: no path ever comes from the page."""
    # FastAPI's caches keep endpoints, and all that these refer to, until Python ends.
    seen: Explorer = weakref.proxy(explorer)
    queue, stories, intake = calculations or Calculations(), Stories(seen), Intake()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        intake.close()
        queue.close()
        stories.close()

    app = Application(
        title="bort explorer",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
    )
    app.state.explorer = explorer
    app.add_middleware(SlowBodies)
    app.add_middleware(GZipMiddleware, minimum_size=2000)
    app.add_middleware(Verbs)
    app.add_middleware(BaseHTTPMiddleware, dispatch=access)
    answer_errors(app)
    _serve_page(app)

    @app.get("/colours.css", include_in_schema=False)
    def colours() -> Response:
        """A colour for each run."""
        return Response(stylesheet(len(seen.subjects)), media_type="text/css")

    for router in (
        _routes_images.routes(seen, access),
        _routes_uploads.routes(seen, intake),
        _routes_inside.routes(seen),
        _routes_channel.routes(seen),
        _routes_evidence.routes(seen, queue),
        _routes_draw.routes(seen),
        _routes_find.routes(seen),
        _routes_audit.routes(seen, stories),
        _routes_story.routes(stories),
    ):
        app.include_router(router)
    return app


def _serve_page(app: FastAPI) -> None:
    """The files in page/, each at its name, index.html at "/"."""
    for file in files("bort.app").joinpath("page").iterdir():
        media_type = _MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            endpoint = _file(file.read_bytes(), f"{media_type}; charset=utf-8")
            app.add_api_route(path, endpoint, include_in_schema=False, response_class=Response)


def _file(content: bytes, media_type: str) -> Callable[[], Response]:
    """An endpoint without parameters: FastAPI would take parameters with defaults from the request."""
    return lambda: Response(content, media_type=media_type)
