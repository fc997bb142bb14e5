"""The explorer over HTTP: every question of the page is an address, every error a sentence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware

from bort import __version__, explain
from bort._defaults import CLUSTERS, DELETION_STEPS, OVERLAY_STRENGTH
from bort.app import _answers as answers
from bort.app._access import Access
from bort.app._calculations import Calculation, Calculations
from bort.app._errors import ERRORS, TOO_LARGE, answer_errors
from bort.app._exceptions import Unknown
from bort.app._explorer import PATTERNS, Explorer
from bort.app._export import archive, data_url
from bort.app._export_page import page
from bort.app._page_state import RequestedState, page_defaults
from bort.app._parameters import (
    ChannelCount,
    ClassNumber,
    Edits,
    Name,
    PatternCount,
    RequestedMap,
    SlowMethod,
    Start,
    Strength,
    edits_of,
)
from bort.app._saliency import MOST_TRACKED
from bort.app._uploads import LARGEST_FILE
from bort.measure import COLUMNS
from bort.pictures import png, signal

_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}

_IMAGE_FILE = {
    "requestBody": {"required": True, "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}}
}


class Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Made anew each time: methods may have been registered since."""
        self.openapi_schema = None
        return super().openapi()


def create(explorer: Explorer, access: Access, calculations: Calculations | None = None) -> FastAPI:
    """The application. It opens the explorer's runs and nothing else: no path ever comes from the page."""
    queue = calculations or Calculations()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        queue.close()

    app = Application(
        title="bort explorer",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
    )
    app.add_middleware(GZipMiddleware, minimum_size=2000)
    app.add_middleware(BaseHTTPMiddleware, dispatch=access)
    answer_errors(app)
    _serve_page(app)

    @app.get("/api/info", response_model=answers.Info)
    def info() -> dict[str, Any]:
        """Runs, layers, images, classes, methods; and every default that the page uses."""
        sizes = {"steps": DELETION_STEPS, "patterns": PATTERNS, "clusters": CLUSTERS}
        return explorer.info() | {"most_tracked": MOST_TRACKED, "defaults": page_defaults() | sizes}

    @app.post("/api/upload", response_model=answers.Uploaded, responses=TOO_LARGE, openapi_extra=_IMAGE_FILE)
    async def upload(request: Request) -> dict[str, str]:
        """An image file as the body."""
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > LARGEST_FILE:
                raise HTTPException(413, f"The file is too large; at most {LARGEST_FILE // 2**20} MB are taken.")
        return {"image": await run_in_threadpool(explorer.upload, bytes(content))}

    @app.get("/api/input.png", response_class=answers.Png)
    def shown(image: Name) -> Response:
        return answers.Png(png(explorer.input(image)))

    @app.get("/api/strip.png", response_class=answers.Png)
    def strip() -> Response:
        """All images beside each other, in the order of /api/info: one request instead of dozens."""
        return answers.Png(png(explorer.strip()))

    @app.get("/api/predict", response_model=list[answers.Prediction])
    def predict(run: Name, image: Name) -> list[dict[str, Any]]:
        return explorer.predict(run, image)

    @app.get("/api/channels", response_model=answers.Channels)
    def channels(
        run: Name, image: Name, layer: Name, k: PatternCount | None = None, start: Start = 0
    ) -> dict[str, Any]:
        """Channels in the order of salience, from the start-th on, and a sheet of their patterns as a data URL."""
        sheet = explorer.channels(run, image, layer, k, start)
        return sheet | {"sheet": data_url(sheet["sheet"])}

    @app.get("/api/channel.png", response_class=answers.Png)
    def channel(run: Name, image: Name, layer: Name, channel: Annotated[int, Query(ge=0, le=1_000_000)]) -> Response:
        return answers.Png(png(signal(explorer.channel(run, image, layer, channel))))

    @app.get("/api/reconstruct", response_model=answers.Reconstruction)
    def reconstruct(
        run: Name,
        image: Name,
        layer: Name,
        k: ChannelCount | None = None,
        binary: bool = True,
        edits: Edits = "",
    ) -> dict[str, Any]:
        """From the whole map, or from its k most salient features."""
        back, correlation = explorer.reconstruct(run, image, layer, k, binary=binary, edits=edits_of(edits))
        return {"picture": data_url(signal(back)), "correlation": correlation}

    @app.get("/api/clusters", response_model=answers.Clusters)
    def clusters(
        run: Name,
        image: Name,
        layer: Name,
        k: PatternCount | None = None,
        groups: Annotated[int, Query(ge=1, le=12)] = CLUSTERS,
    ) -> dict[str, Any]:
        coloured, members = explorer.clusters(run, image, layer, k, groups)
        return {"picture": data_url(coloured), "groups": members}

    @app.post("/api/jobs", response_model=answers.CalculationStatus)
    def start(
        run: Name, image: Name, method: SlowMethod, target: ClassNumber | None = None, page: Name = ""
    ) -> dict[str, Any]:
        """Compute the map of a slow method; asked for twice, it is computed once. ``page`` tells one page from another."""
        explorer.image(run, image)  # an unknown run or image is an error before anything is queued
        if method not in explain.names():
            raise Unknown(f"There is no method {method!r}.")
        if not explain.get(method).slow:
            raise ValueError(f"{method} is not slow: ask for its map at /api/saliency.")
        key = json.dumps([run, image, method, target])
        compute = partial(explorer.saliency.map, run, image, method, target)
        return _status(queue.start(key, lambda progress: compute(progress=progress), page))

    @app.get("/api/jobs/{name}", response_model=answers.CalculationStatus)
    def status(name: str, page: Name = "") -> dict[str, Any]:
        return _status(queue.get(name, page))

    @app.delete("/api/jobs/{name}", response_model=answers.CalculationStatus)
    def cancel(name: str, leave: Name = "") -> dict[str, Any]:
        """Stop it. With ``leave``, that page no longer waits for it, and it goes on if another does."""
        return _status(queue.leave(name, leave) if leave else queue.cancel(name))

    @app.get("/api/saliency", response_model=answers.PictureAnswer)
    def saliency(of: RequestedMap, strength: Strength = OVERLAY_STRENGTH) -> dict[str, Any]:
        """The map over the image."""
        return {"picture": data_url(explorer.saliency.overlay(of.run, of.image, of.map(explorer), strength))}

    @app.get("/api/curve", response_model=dict[str, answers.Curve])
    def curve(of: RequestedMap) -> dict[str, Any]:
        """Deletion and insertion by three scores."""
        return explorer.saliency.curve(of.run, of.image, of.map(explorer), of.target)

    @app.get("/api/step", response_model=answers.PictureAnswer)
    def step(
        of: RequestedMap,
        step: Annotated[int, Query(ge=0, le=DELETION_STEPS)],
        which: Literal["deletion", "insertion"] = "deletion",
    ) -> dict[str, Any]:
        """The image at a step; its score is in the curve."""
        return {"picture": data_url(explorer.saliency.step(of.run, of.image, of.map(explorer), step, which))}

    @app.get("/api/transplant", response_model=answers.Transplant)
    def transplant(
        run: Name,
        source: Name,
        target: Name,
        layer: Name,
        k: ChannelCount | None = None,
        path: Literal["source", "target", "none"] = "none",
    ) -> dict[str, Any]:
        """The target's features at the source's places, and what the network says of the image and of the map."""
        image, verdicts = explorer.transplant(run, source, target, layer, k, path)
        return verdicts | {"picture": data_url(image)}

    @app.get("/api/audit", response_model=answers.AuditAnswer)
    def audit(run: Name) -> dict[str, Any]:
        """What is true of each layer: the table's columns, and its rows as numbers and as text."""
        layers = explorer.audit(run)
        shown = [{column.key: column.show(layer) for column in COLUMNS} for layer in layers]
        return {
            "columns": [
                {"key": c.key, "title": c.title, "meaning": c.meaning, "is_number": c.is_number} for c in COLUMNS
            ],
            "layers": [values | {"shown": texts} for values, texts in zip(layers.to_dict(), shown, strict=True)],
        }

    @app.get("/api/export.zip", response_class=answers.Zip)
    def export_archive(state: RequestedState) -> Response:
        """The view as PNG and npy, with a manifest."""
        return answers.Zip(archive(explorer, state), headers=_attachment("bort-view.zip"))

    @app.get("/api/export.html", response_class=HTMLResponse)
    def export_page(state: RequestedState) -> Response:
        """The view as one self-contained page."""
        return HTMLResponse(page(explorer, state), headers=_attachment("bort-view.html"))

    return app


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


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


def _status(calculation: Calculation | None) -> dict[str, Any]:
    if calculation is None:
        raise Unknown("There is no such calculation any more.")
    return {
        "job": calculation.name,
        "state": calculation.state,
        "done": calculation.done,
        "total": calculation.total,
        "message": calculation.message,
    }
