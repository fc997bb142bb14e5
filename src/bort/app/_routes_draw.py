"""Drawings."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from torch import Tensor

from bort.app import _answers as answers
from bort.app._errors import OF_UPLOADS
from bort.app._explorer import Explorer
from bort.app._export import data_url
from bort.app._parameters import Name
from bort.pictures import png, scale_of, signal

_MOST_BYTES = 2**18
_CANVAS = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def routes(explorer: Explorer) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.post("/draw", response_model=answers.DrawingAnswer, responses=OF_UPLOADS, openapi_extra=_CANVAS)
    async def draw(request: Request, layer: Name = "", centre: bool = True, keep: bool = False) -> dict[str, Any]:
        """What all networks say of a drawing: the canvas of /api/info as the body, row by row, 0 is paper and 255 ink."""
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > _MOST_BYTES:
                raise HTTPException(413, "This is larger than the canvas.")
        return await run_in_threadpool(_look, explorer, bytes(content), layer, centre, keep)

    @router.get("/drawing.png", response_class=answers.Png)
    def drawing(drawing: Name) -> Response:
        """The canvas of a drawing that was kept."""
        return answers.Png(png(explorer.drawings.picture(drawing)))

    @router.post("/drawing", response_model=answers.Uploaded)
    def to_gallery(drawing: Name, centre: bool = True) -> dict[str, str]:
        """Put a drawing that was kept among the images."""
        return {"image": explorer.drawings.to_gallery(drawing, centre=centre)}

    return router


def _look(explorer: Explorer, content: bytes, layer: str, centre: bool, keep: bool) -> dict[str, Any]:
    drawings = explorer.drawings
    looks = [drawings.look(run, x, layer) for run, x in drawings.inputs(content, centre=centre).items()]
    return {
        "drawing": drawings.keep(content) if keep else "",
        "picture": data_url(drawings.seen(content, centre=centre)),
        "runs": [_drawn(**look) for look in looks],
    }


def _drawn(reconstruction: Tensor | None, **facts: Any) -> dict[str, Any]:
    if reconstruction is None:
        return facts | {"picture": None, "scale": None}
    scale = scale_of(reconstruction)
    return facts | {"picture": data_url(signal(reconstruction, scale)), "scale": scale}
