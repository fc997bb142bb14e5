"""The audit, and the current view to take away."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from bort.app import _answers as answers
from bort.app._explorer import Explorer
from bort.app._export import archive
from bort.app._export_page import page
from bort.app._page_state import RequestedState
from bort.app._parameters import Name
from bort.app._stories import Stories
from bort.measure import COLUMNS


def routes(explorer: Explorer, stories: Stories) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/audit", response_model=answers.AuditAnswer)
    def audit(run: Name) -> dict[str, Any]:
        """What is true of each layer: the table's columns, and its rows as numbers and as text."""
        layers = explorer.audit(run)
        shown = [{column.key: column.show(layer) for column in COLUMNS} for layer in layers]
        return {
            "n": explorer.image_count(run),
            "left_out": explorer.left_out(run),
            "columns": [
                {"key": c.key, "title": c.title, "meaning": c.meaning, "is_number": c.is_number} for c in COLUMNS
            ],
            "layers": [values | {"shown": texts} for values, texts in zip(layers.to_dict(), shown, strict=True)],
        }

    @router.get("/export.zip", response_class=answers.Zip)
    def export_archive(state: RequestedState) -> Response:
        """The view as PNG and npy, with a manifest."""
        return answers.Zip(archive(explorer, state), headers=_attachment("bort-view.zip"))

    @router.get("/export.html", response_class=HTMLResponse)
    def export_page(state: RequestedState) -> Response:
        """The view as one self-contained page."""
        return HTMLResponse(page(explorer, state, stories.tell(state).text), headers=_attachment("bort-view.html"))

    return router


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
