"""Many images in one picture: one request instead of dozens."""

from __future__ import annotations

import io
import threading
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from bort.pictures import Picture, grid, png

if TYPE_CHECKING:
    from bort.app._explorer import Explorer

COLUMNS: Final = 16
"""Of a sheet of images: browsers do not show pictures that are ten thousands of pixels wide."""
LARGEST: Final = 96
"""Pixels of a thumbnail's side, at most."""
_KEPT: Final = 1024  # of 27 kB each
_SMALL: Final = 64  # pixels of an image's side, up to which each of them counts


class Thumbnails:
    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._lock, self._kept = threading.Lock(), OrderedDict[str, Picture]()

    def strip(self) -> Picture:
        """The images that the page offers, in the order of `Explorer.info`."""
        return self.sheet([image.name for image in self._explorer.gallery.list()], 56)

    def sheet(self, names: Sequence[str], side: int = LARGEST) -> Picture:
        """These images row by row, COLUMNS beside each other, each at most so large."""
        small = [_reduced(self._thumbnail(name), side) for name in names]
        rows = [small[n : n + COLUMNS] for n in range(0, len(small), COLUMNS)]
        return grid(rows, gap=0, colour=0) if small else np.zeros((1, 1, 3), np.uint8)

    def keep(self, name: str, image: Picture) -> None:
        """For a page that will ask for it; the one that was used longest ago is dropped."""
        small = _reduced(image, LARGEST)
        with self._lock:
            self._kept[name] = small
            self._kept.move_to_end(name)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    def _thumbnail(self, name: str) -> Picture:
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        image = self._explorer.input(name)
        self.keep(name, image)
        return _reduced(image, LARGEST)


def _reduced(image: Picture, side: int) -> Picture:
    from PIL.Image import Resampling, fromarray

    if max(image.shape[:2]) <= side:
        return image
    return np.array(fromarray(image).resize((side, side), Resampling.LANCZOS))


def sheet_url(sheet: Picture, side: int) -> str:
    """A data URL: as PNG; of larger images as JPEG, since a page of photographs would be a megabyte."""
    from PIL.Image import fromarray

    if side <= _SMALL:
        return "data:image/png;base64," + b64encode(png(sheet)).decode()
    buffer = io.BytesIO()
    fromarray(sheet).save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + b64encode(buffer.getvalue()).decode()
