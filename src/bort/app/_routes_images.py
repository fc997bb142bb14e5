"""Images, and what there is to choose from."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from bort import explain
from bort._defaults import CLUSTERS, DELETION_STEPS
from bort.app import _answers as answers
from bort.app._access import Access
from bort.app._explorer import Explorer
from bort.app._inside import PATTERNS
from bort.app._page_state import page_defaults
from bort.app._parameters import Name
from bort.app._saliency import MOST_TRACKED
from bort.app._thumbnails import COLUMNS
from bort.pictures import png


def routes(explorer: Explorer, access: Access) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/info", response_model=answers.Info)
    def info() -> dict[str, Any]:
        """Runs, layers, images, classes, methods; and every default that the page uses."""
        sizes = {"steps": DELETION_STEPS, "patterns": PATTERNS, "clusters": CLUSTERS}
        options = {name: list(explain.get(name).settings.values()) for name in explain.names()}
        return explorer.info() | {
            "image_columns": COLUMNS,
            "most_tracked": MOST_TRACKED,
            "options": options,
            "needs_token": access.needs_token,
            "defaults": page_defaults() | sizes,
        }

    @router.get("/image", response_model=answers.ImageInfo)
    def image(image: Name) -> dict[str, str]:
        """Of any image, offered or not: test-7 is the eighth test image of the report's order."""
        return explorer.gallery[image].info()

    @router.get("/input.png", response_class=answers.Png)
    def shown(image: Name) -> Response:
        return answers.Png(png(explorer.input(image)))

    @router.get("/strip.png", response_class=answers.Png)
    def strip() -> Response:
        """All images of /api/info row by row, image_columns beside each other: one request instead of dozens."""
        return answers.Png(png(explorer.thumbnails.strip()))

    @router.get("/predict", response_model=list[answers.Prediction])
    def predict(run: Name, image: Name) -> list[dict[str, Any]]:
        return explorer.predict(run, image)

    return router
