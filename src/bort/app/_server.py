"""The explorer over HTTP: thin, every view an address, every mistake a sentence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware

from bort import __version__
from bort.app import _answers as answers
from bort.app._saliency import STEPS, Slow
from bort.app._explorer import Explorer
from bort.app._export import archive, data_url
from bort.app._access import Guard
from bort.app._jobs import Job, Jobs
from bort.app._cache import Unknown
from bort.app._errors import MISTAKES, TOO_LARGE, answer_mistakes
from bort.app._page import page
from bort.app._parameters import Class, Drawn, Edits, Name, Part, Some, Start, Wanted, edits_of
from bort.app._uploads import LARGEST_FILE
from bort.app._page_state import AView
from bort.pictures import png, signal

_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_ASSETS = ("index.html", "app.css", "app.js", "ask.js", "jobs.js", "parts.js", "state.js", "views.js")

_FILE = {"requestBody": {"required": True, "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}}}


def create(explorer: Explorer, guard: Guard, jobs: Jobs | None = None) -> FastAPI:
    """The application. It opens the explorer's runs and nothing else: no path ever comes from the page."""
    queue = jobs or Jobs()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        queue.close()

    app = FastAPI(
        title="bort explorer",
        version=__version__,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        responses=MISTAKES,
    )
    app.add_middleware(GZipMiddleware, minimum_size=2000)
    app.add_middleware(BaseHTTPMiddleware, dispatch=guard)
    answer_mistakes(app)
    _assets(app)

    @app.get("/api/info", response_model=answers.Info)
    def info() -> dict[str, Any]:
        """Runs, layers, images, classes, methods."""
        return explorer.info()

    @app.post("/api/upload", response_model=answers.Uploaded, responses=TOO_LARGE, openapi_extra=_FILE)
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
    def channels(run: Name, image: Name, layer: Name, k: Drawn = None, start: Start = 0) -> dict[str, Any]:
        """Channels in the order of salience, from the start-th on, and a sheet of their patterns as a data URL."""
        found = explorer.channels(run, image, layer, k, start)
        return found | {"sheet": data_url(found["sheet"])}

    @app.get("/api/channel.png", response_class=answers.Png)
    def channel(run: Name, image: Name, layer: Name, channel: Annotated[int, Query(ge=0, le=1_000_000)]) -> Response:
        return answers.Png(png(signal(explorer.channel(run, image, layer, channel))))

    @app.get("/api/reconstruct", response_model=answers.Reconstruction)
    def reconstruct(
        run: Name,
        image: Name,
        layer: Name,
        k: Some = None,
        binary: bool = True,
        edits: Edits = "",
    ) -> dict[str, Any]:
        """From the whole map, or from its k most salient features."""
        back, like = explorer.reconstruct(run, image, layer, k, binary=binary, edits=edits_of(edits))
        return {"picture": data_url(signal(back)), "correlation": like}

    @app.get("/api/clusters", response_model=answers.Clusters)
    def clusters(
        run: Name,
        image: Name,
        layer: Name,
        k: Drawn = None,
        groups: Annotated[int, Query(ge=1, le=12)] = 4,
    ) -> dict[str, Any]:
        coloured, members = explorer.clusters(run, image, layer, k, groups)
        return {"picture": data_url(coloured), "groups": members}

    @app.post("/api/jobs", response_model=answers.Calculation)
    def start(run: Name, image: Name, method: Slow, target: Class = None, page: Name = "") -> dict[str, Any]:
        """Compute a slow map; asked for twice, it is done once. ``page`` is whatever tells one page from another."""
        explorer.image(run, image)  # say what is not there before anything is begun
        key = json.dumps([run, image, method, target])
        work = partial(explorer.evidence.saliency, run, image, method, target)
        return _job(queue.start(key, lambda progress: work(progress=progress), page))

    @app.get("/api/jobs/{name}", response_model=answers.Calculation)
    def look(name: str, page: Name = "") -> dict[str, Any]:
        return _job(queue.get(name, page))

    @app.delete("/api/jobs/{name}", response_model=answers.Calculation)
    def cancel(name: str, leave: Name = "") -> dict[str, Any]:
        """Stop it; or let a page ``leave`` it, then it goes on if another waits for it."""
        return _job(queue.leave(name, leave) if leave else queue.cancel(name))

    @app.get("/api/saliency", response_model=answers.Seen)
    def saliency(wanted: Wanted, strength: Part = 0.6) -> dict[str, Any]:
        """The map over the image."""
        return {"picture": data_url(explorer.evidence.overlay(wanted.run, wanted.image, wanted.of(explorer), strength))}

    @app.get("/api/curve", response_model=dict[str, answers.Curve])
    def curve(wanted: Wanted) -> dict[str, Any]:
        """Deletion and insertion by three scores."""
        return explorer.evidence.curve(wanted.run, wanted.image, wanted.of(explorer), wanted.target)

    @app.get("/api/step", response_model=answers.Seen)
    def step(
        wanted: Wanted,
        step: Annotated[int, Query(ge=0, le=STEPS)],
        which: Literal["deletion", "insertion"] = "deletion",
    ) -> dict[str, Any]:
        """The image at a step; its score is the curve's."""
        return {"picture": data_url(explorer.evidence.step(wanted.run, wanted.image, wanted.of(explorer), step, which))}

    @app.get("/api/transplant", response_model=answers.Transplant)
    def transplant(
        run: Name,
        source: Name,
        target: Name,
        layer: Name,
        k: Some = None,
        path: Literal["source", "target", "none"] = "none",
    ) -> dict[str, Any]:
        """The target's features at the source's places, and both verdicts."""
        made, verdicts = explorer.transplant(run, source, target, layer, k, path)
        return verdicts | {"picture": data_url(made)}

    @app.get("/api/audit", response_model=list[answers.Audited])  # type: ignore[valid-type]
    def audit(run: Name) -> list[dict[str, Any]]:
        return explorer.audit(run)

    @app.get("/api/export.zip", response_class=answers.Zip)
    def export(view: AView) -> Response:
        """What is seen, as PNG and npy, with a manifest."""
        return answers.Zip(archive(explorer, view), headers=_saved("bort-view.zip"))

    @app.get("/api/export.html", response_class=HTMLResponse)
    def export_page(view: AView) -> Response:
        """What is seen, as one self-contained page."""
        return HTMLResponse(page(explorer, view), headers=_saved("bort-view.html"))

    return app


def _saved(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _assets(app: FastAPI) -> None:
    for name in _ASSETS:
        content = files("bort.app").joinpath("page", name).read_bytes()
        kind = f"{_KINDS[name.rpartition('.')[2]]}; charset=utf-8"

        def serve(content: bytes = content, kind: str = kind) -> Response:
            return Response(content, media_type=kind)

        path = "/" if name == "index.html" else f"/{name}"
        app.add_api_route(path, serve, include_in_schema=False, response_class=Response)


def _job(job: Job | None) -> dict[str, Any]:
    if job is None:
        raise Unknown("There is no such calculation any more.")
    return {"job": job.name, "state": job.state, "done": job.done, "total": job.total, "message": job.message}
