"""Images that were sent: as the networks see them, and inverted where their own images are the other way round."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch

from bort.app._gallery import GalleryImage, name_of
from bort.app._ink import Paper, contrast_of, inverted, paper_of
from bort.app._uploads import decode, side_of

if TYPE_CHECKING:
    from bort.app._explorer import Explorer


class SentImages:
    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._first = next(iter(explorer.subjects))

    @cached_property
    def paper(self) -> Paper | None:
        """What is at the edges of the networks' own images; None if that differs, or if there are none."""
        test = [image.inputs[self._first] for image in self._explorer.gallery.offered()]
        return paper_of(self._explorer.view(self._first).pixels(torch.cat(test))) if test else None

    def add(self, content: bytes) -> str:
        """The name of the image in an image file; the same file has the same name."""
        subjects = self._explorer.subjects
        views = {run: self._explorer.view(run) for run in subjects}
        image = decode(content, max(map(side_of, views.values())), self.paper or "bright")
        inputs = {run: views[run](image).to(own.device, own.dtype) for run, own in subjects.items()}
        pixels = views[self._first].pixels(inputs[self._first])
        name = name_of("upload", content)
        self._explorer.gallery.send(GalleryImage(name, inputs, contrast=contrast_of(pixels, self.paper)))
        return name

    def invert(self, name: str) -> str:
        """The name of the same image on the other paper."""
        image = self._explorer.gallery[name]
        views = {run: self._explorer.view(run) for run in image.inputs}
        inputs = {run: views[run].normalised(inverted(views[run].pixels(x))) for run, x in image.inputs.items()}
        inverse = f"{name}-inverted"
        self._explorer.gallery.send(GalleryImage(inverse, inputs, image.label, inverse_of=name))
        return inverse
