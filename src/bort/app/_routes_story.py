"""The view in a sentence."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from bort.app import _answers as answers
from bort.app._page_state import RequestedState
from bort.app._stories import Stories


def routes(stories: Stories) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/story", response_model=answers.StoryAnswer)
    def story(state: RequestedState) -> dict[str, Any]:
        """What the view with this address shows; numbers of many images come later."""
        told = stories.tell(state)
        return {"text": told.text, "pending": told.is_pending}

    return router
