"""The explorer over HTTP: thin, every view an address, every mistake a sentence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any, Literal

import torch
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteException
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from torch import Tensor

from bort import __version__
from bort.app._explorer import SLOW, Explorer
from bort.app._export import archive, data_url, page
from bort.app._guard import Guard
from bort.app._jobs import Busy, Job, Jobs
from bort.app._kept import Unknown
from bort.app._uploads import LARGEST_FILE, Refused
from bort.report._images import Picture, png, signal

Name = Annotated[str, Query(max_length=200)]
Count = Annotated[int, Query(ge=1, le=100_000)]
Some = Annotated[int | None, Query(ge=1, le=100_000)]
Class = Annotated[int | None, Query(ge=0, le=1_000_000)]
Part = Annotated[float, Query(ge=0, le=1)]
Threshold = Annotated[float | None, Query(ge=0, lt=1)]


@dataclass
class Map:
    """Which saliency map: shared by everything that is seen of one."""

    run: Name
    image: Name
    method: Name
    target: Class = None
    k: Some = None
    threshold: Threshold = None

    def of(self, explorer: Explorer) -> Tensor:
        return explorer.saliency(self.run, self.image, self.method, self.target, self.k, self.threshold)


Wanted = Annotated[Map, Depends()]

_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.css": ("app.css", "text/css; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/views.js": ("views.js", "text/javascript; charset=utf-8"),
}


def create(explorer: Explorer, guard: Guard, jobs: Jobs | None = None) -> FastAPI:
    """The application. It opens the explorer's runs and nothing else: no path ever comes from the page."""
    queue = jobs or Jobs()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        queue.close()

    app = FastAPI(title="bort explorer", version=__version__, lifespan=life, docs_url=None, redoc_url=None)
    app.add_middleware(GZipMiddleware, minimum_size=2000)
    app.add_middleware(BaseHTTPMiddleware, dispatch=guard)
    _errors(app)
    _page(app)

    @app.get("/api/info")
    def info() -> dict[str, Any]:
        """Runs, layers, images, classes, methods."""
        return explorer.info()

    @app.post("/api/upload", responses={400: {}, 413: {}})
    async def upload(request: Request) -> dict[str, str]:
        """An image file as the body."""
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > LARGEST_FILE:
                raise HTTPException(413, f"The file is too large; at most {LARGEST_FILE // 2**20} MB are taken.")
        return {"image": explorer.upload(bytes(content))}

    @app.get("/api/input.png", response_class=Response)
    def shown(image: Name) -> Response:
        return _png(explorer.input(image))

    @app.get("/api/predict")
    def predict(run: Name, image: Name) -> list[dict[str, Any]]:
        return explorer.predict(run, image)

    @app.get("/api/channels")
    def channels(run: Name, image: Name, layer: Name, k: Annotated[int, Query(ge=1, le=256)] = 64) -> dict[str, Any]:
        """The most salient channels, and a sheet of their patterns as a data URL."""
        found = explorer.channels(run, image, layer, k)
        return found | {"sheet": data_url(found["sheet"])}

    @app.get("/api/channel.png", response_class=Response)
    def channel(run: Name, image: Name, layer: Name, channel: Annotated[int, Query(ge=0, le=1_000_000)]) -> Response:
        return _png(signal(explorer.channel(run, image, layer, channel)))

    @app.get("/api/reconstruct")
    def reconstruct(
        run: Name,
        image: Name,
        layer: Name,
        k: Some = None,
        binary: bool = True,
        edits: Annotated[str, Query(max_length=4000)] = "",
    ) -> dict[str, Any]:
        """``edits`` scales channels: "12:0,40:2.5" switches channel 12 off and makes channel 40 two and a half times as
        strong."""
        back, like = explorer.reconstruct(run, image, layer, k, binary=binary, edits=_edits(edits))
        return {"picture": data_url(signal(back)), "correlation": like}

    @app.get("/api/clusters")
    def clusters(
        run: Name,
        image: Name,
        layer: Name,
        k: Annotated[int, Query(ge=1, le=256)] = 64,
        groups: Annotated[int, Query(ge=1, le=12)] = 4,
    ) -> dict[str, Any]:
        coloured, members = explorer.clusters(run, image, layer, k, groups)
        return {"picture": data_url(coloured), "groups": members}

    @app.post("/api/jobs")
    def start(run: Name, image: Name, method: Name, target: Class = None) -> dict[str, Any]:
        """Compute a slow map; asked for twice, it is done once."""
        explorer.require(run, image)
        if method not in SLOW:
            raise Unknown(f"{method!r} is not one of the slow methods {', '.join(SLOW)}.")
        key = json.dumps([run, image, method, target])
        return _job(queue.start(key, lambda progress: explorer.saliency(run, image, method, target, progress=progress)))

    @app.get("/api/jobs/{name}")
    def look(name: str) -> dict[str, Any]:
        return _job(queue.get(name))

    @app.delete("/api/jobs/{name}")
    def cancel(name: str) -> dict[str, Any]:
        return _job(queue.cancel(name))

    @app.get("/api/saliency")
    def saliency(wanted: Wanted, strength: Part = 0.6) -> dict[str, Any]:
        """The map over the image."""
        return {"picture": data_url(explorer.overlay(wanted.image, wanted.of(explorer), strength))}

    @app.get("/api/curve")
    def curve(wanted: Wanted) -> dict[str, Any]:
        """Deletion and insertion by three scores."""
        return explorer.curve(wanted.run, wanted.image, wanted.of(explorer), wanted.target)

    @app.get("/api/step")
    def step(
        wanted: Wanted,
        step: Annotated[int, Query(ge=0, le=28)],
        which: Literal["deletion", "insertion"] = "deletion",
    ) -> dict[str, Any]:
        """The image at a step."""
        at, chance = explorer.step(wanted.run, wanted.image, wanted.of(explorer), step, which)
        return {"picture": data_url(at), "probability": chance}

    @app.get("/api/transplant")
    def transplant(
        run: Name,
        source: Name,
        target: Name,
        layer: Name,
        k: Count = 64,
        path: Literal["source", "target", "none"] = "none",
    ) -> dict[str, Any]:
        """The target's features at the source's places, and both verdicts."""
        made, verdicts = explorer.transplant(run, source, target, layer, k, path)
        return verdicts | {"picture": data_url(made)}

    @app.get("/api/audit")
    def audit(run: Name) -> list[dict[str, Any]]:
        return explorer.audit(run)

    @app.get("/api/export.zip", response_class=Response)
    def export(
        run: Name,
        image: Name,
        layer: Name,
        method: Name = "sat",
        k: Some = None,
        threshold: Threshold = None,
        target: Class = None,
        edits: Annotated[str, Query(max_length=4000)] = "",
    ) -> Response:
        """What is seen, as PNG and npy, with a manifest."""
        view: dict[str, Any] = {"run": run, "image": image, "layer": layer, "method": method, "k": k}
        view |= {"threshold": threshold, "target": target}
        headers = {"Content-Disposition": 'attachment; filename="bort-view.zip"'}
        content = archive(explorer, view, _edits(edits))
        return Response(content, media_type="application/zip", headers=headers)

    @app.get("/api/export.html", response_class=Response)
    def export_page(
        image: Name,
        layer: Name = "",
        method: Name = "sat",
        k: Some = None,
        threshold: Threshold = None,
        target: Class = None,
        edits: Annotated[str, Query(max_length=4000)] = "",
    ) -> Response:
        """The view of all runs as one self-contained page; ``edits`` of the runs are separated by semicolons."""
        view = {"image": image, "layer": layer, "method": method, "k": k, "threshold": threshold, "target": target}
        headers = {"Content-Disposition": 'attachment; filename="bort-view.html"'}
        text = page(explorer, view, [_edits(each) for each in edits.split(";")])
        return Response(text, media_type="text/html; charset=utf-8", headers=headers)

    return app


def _page(app: FastAPI) -> None:
    for path, (name, kind) in _PAGE.items():
        content = files("bort.app").joinpath("page", name).read_bytes()

        def serve(content: bytes = content, kind: str = kind) -> Response:
            return Response(content, media_type=kind)

        app.add_api_route(path, serve, include_in_schema=False, response_class=Response)


def _errors(app: FastAPI) -> None:
    """Messages, never traces."""

    def answer(status: int) -> Any:
        async def handler(request: Request, error: Exception) -> JSONResponse:
            message = getattr(error, "detail", None) or str(error) or type(error).__name__
            return JSONResponse({"message": str(message)}, status_code=getattr(error, "status_code", status))

        return handler

    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"][1:])
        return JSONResponse({"message": f"{where}: {first['msg']}"}, status_code=422)

    app.add_exception_handler(RequestValidationError, invalid)  # type: ignore[arg-type]
    for kind, status in (
        (Unknown, 404),
        (Refused, 400),
        (Busy, 503),
        (StarletteException, 400),
        (ValueError, 400),
        (torch.OutOfMemoryError, 503),
        (Exception, 500),
    ):
        app.add_exception_handler(kind, answer(status))


def _job(job: Job | None) -> dict[str, Any]:
    if job is None:
        raise Unknown("There is no such calculation any more.")
    return {"job": job.name, "state": job.state, "done": job.done, "total": job.total, "message": job.message}


def _edits(text: str) -> dict[int, float]:
    found = {}
    for part in filter(None, text.split(",")):
        channel, _, factor = part.partition(":")
        try:
            found[int(channel)] = float(factor)
        except ValueError:
            raise ValueError(f"edits: {part!r} is not channel:factor, such as 12:0.5.") from None
        if not abs(found[int(channel)]) <= 100:
            raise ValueError(f"edits: the factor of {part!r} must be from -100 to 100.")
    return found


def _png(image: Picture) -> Response:
    return Response(png(image), media_type="image/png")
