"""Images found in the index of the test set."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from bort.app import _answers as answers
from bort.app._explorer import Explorer
from bort.app._find import Finder, Order, Question
from bort.app._parameters import Name, PageNumber, Wrong
from bort.app._thumbnails import COLUMNS, sheet_url


def routes(explorer: Explorer) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/find", response_model=answers.Found)
    def find(
        label: Name = "",
        said: Name = "",
        wrong: Wrong = "",
        disagree: bool = False,
        order: Order = "report",
        page: PageNumber = 0,
        again: bool = False,
    ) -> dict[str, Any]:
        """A page of test images by class, by what the networks say, by where they differ. The first time it begins to compute
        the index, and answers with what is known so far; ``again`` begins anew after a failure."""
        explorer.index.start(again=again)
        found = Finder(explorer).find(Question(label, said, wrong, disagree, order, page))
        names = [image["name"] for image in found["images"]]
        sheet = explorer.thumbnails.sheet(names)
        return found | {
            "sheet": sheet_url(sheet, sheet.shape[1] // min(COLUMNS, max(1, len(names)))),
            "columns": COLUMNS,
        }

    return router
