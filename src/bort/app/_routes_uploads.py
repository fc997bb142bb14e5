"""Images that a person sends."""

from __future__ import annotations

from fastapi import APIRouter, Request

from bort.app import _answers as answers
from bort.app._errors import OF_UPLOADS
from bort.app._explorer import Explorer
from bort.app._intake import Intake
from bort.app._parameters import Name

_IMAGE_FILE = {
    "requestBody": {"required": True, "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}}
}


def routes(explorer: Explorer, intake: Intake) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.post("/upload", response_model=answers.Uploaded, responses=OF_UPLOADS, openapi_extra=_IMAGE_FILE)
    async def upload(request: Request) -> dict[str, str]:
        """An image file as the body."""
        async with intake.read(request) as content:
            return {"image": await intake.decode(explorer.upload, bytes(content))}

    @router.post("/invert", response_model=answers.Uploaded)
    def invert(image: Name) -> dict[str, str]:
        """The same image with dark and bright exchanged, among the images that were sent."""
        return {"image": explorer.sent.invert(image)}

    return router
