"""What the networks say of a drawing, while it is drawn."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from bort import explain, invert
from bort._inspect import class_probabilities, evaluating, finite, outputs_of
from bort.app._centre import Ink, centred, resized
from bort.app._exceptions import Unknown
from bort.app._gallery import GalleryImage, name_of
from bort.app._verdicts import likeliest
from bort.pictures import Picture, picture

if TYPE_CHECKING:
    from PIL.Image import Image

    from bort.app._explorer import Explorer

LARGEST_SIDE: Final = 64
"""Of the networks' input, in pixels: larger images are photographs, and a drawing is none."""
_CANVAS: Final = 224  # pixels of the canvas at its longer side, at most
_KEPT: Final = 64
_FEW_CLASSES: Final = 12  # of which all are shown


class Drawings:
    """A drawing is the canvas as bytes, row by row: 0 is paper, 255 is ink. The canvas is a whole number of times as large as
    the first network's input, so that strokes have soft edges."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._lock, self._drawings = threading.Lock(), OrderedDict[str, bytes]()

    @property
    def refusal(self) -> str:
        """Why nothing can be drawn for these networks; empty if it can."""
        for run in self._explorer.subjects:
            view = self._explorer.view(run)
            if view.channels != 1 or max(view.height, view.width) > LARGEST_SIDE:
                return (
                    f"Only small grey images can be drawn (1 channel, at most {LARGEST_SIDE} × {LARGEST_SIDE} pixels), and "
                    f"{run} takes {view.channels} × {view.height} × {view.width}."
                )
        return ""

    @property
    def canvas(self) -> dict[str, Any]:
        """Rows and columns of the network's pixels, and how many of the canvas's make one of those."""
        if self.refusal:
            raise ValueError(self.refusal)
        view = self._explorer.view(next(iter(self._explorer.subjects)))
        return {
            "rows": view.height,
            "columns": view.width,
            "scale": _CANVAS // max(view.height, view.width),
            "paper": self._explorer.sent.paper or "dark",
        }

    # --- drawings that a link or an export can name

    def keep(self, content: bytes) -> str:
        """The drawing's name; the same drawing has the same. The one that was used longest ago is dropped."""
        self._ink(content)
        name = name_of("drawing", content)
        with self._lock:
            self._drawings[name] = content
            self._drawings.move_to_end(name)
            while len(self._drawings) > _KEPT:
                self._drawings.popitem(last=False)
        return name

    def named(self, name: str) -> bytes:
        with self._lock:
            if name not in self._drawings:
                raise Unknown(f"There is no drawing {name!r} any more; draw it again." if name else "Nothing is drawn.")
            self._drawings.move_to_end(name)
            return self._drawings[name]

    def picture(self, name: str) -> Picture:
        """The canvas."""
        return picture(torch.from_numpy(self._ink(self.named(name)))[None])

    def to_gallery(self, name: str, *, centre: bool) -> str:
        """The name of the drawing among the images."""
        image = f"{name}{'' if centre else '-as-drawn'}"
        self._explorer.gallery.send(GalleryImage(image, self.inputs(self.named(name), centre=centre)))
        return image

    # --- what the networks say

    def inputs(self, content: bytes, *, centre: bool) -> dict[str, Tensor]:
        """(1, 1, H, W) for each run, as its network sees the drawing; centred as MNIST's digits are, or as it is drawn."""
        image = self._image(content, centre=centre)
        return {
            run: self._explorer.view(run)(image).to(subject.device, subject.dtype)
            for run, subject in self._explorer.subjects.items()
        }

    def seen(self, content: bytes, *, centre: bool) -> Picture:
        """What the first network gets, as a person sees it."""
        return np.asarray(self._image(content, centre=centre).convert("RGB"))

    def look(self, run: str, x: Tensor, layer: str) -> dict[str, Any]:
        """The likeliest classes, all if they are few, and g of the layer's whole map with its correlation. A layer that the
        network does not have is its top one; without any there is no g."""
        subject, view = self._explorer.subject(run), self._explorer.view(run)
        back: Tensor | None = None
        with self._explorer.lock:
            names = {info["name"] for info in self._explorer.layers(run)}
            if layer not in names:
                layer = self._explorer.top(run) or next(reversed(explain.map_layers(subject.model, x)), "")
            if layer:
                trace = invert.Backtracker(subject.model, layer).trace(x)
                back, outputs = trace.back(trace.maps), trace.outputs
            else:
                with torch.no_grad(), evaluating(subject.model):
                    outputs = outputs_of(subject.model, x)
        outputs = finite(outputs, f"the outputs of {run}")
        probabilities = class_probabilities(outputs, multi_label=subject.multi_label)[0]
        return {
            "run": run,
            "layer": layer,
            "classes": likeliest(probabilities, view, len(probabilities) if len(probabilities) <= _FEW_CLASSES else 5),
            "reconstruction": None if back is None else back[0],
            "correlation": None if back is None else invert.correlation(back, x)[0].item(),
        }

    def _image(self, content: bytes, *, centre: bool) -> Image:
        from PIL.Image import fromarray

        canvas, ink = self.canvas, self._ink(content)
        field = (centred if centre else resized)(ink, canvas["rows"], canvas["columns"])
        pixels = field if canvas["paper"] == "dark" else 1 - field
        return fromarray((pixels * 255).round().astype(np.uint8))

    def _ink(self, content: bytes) -> Ink:
        canvas = self.canvas
        height, width = canvas["rows"] * canvas["scale"], canvas["columns"] * canvas["scale"]
        if len(content) != height * width:
            raise ValueError(
                f"The drawing has {len(content)} bytes; the canvas is {width} × {height}, a byte a pixel: {height * width}."
            )
        ink: Ink = np.frombuffer(content, np.uint8).reshape(height, width).astype(np.float32)
        return ink / np.float32(255)
