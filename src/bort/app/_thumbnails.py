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
_KEPT: Final = 1024
_SMALL: Final = 64  # pixels of an image's side, up to which each of them counts


class Thumbnails:
    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._lock, self._kept = threading.Lock(), OrderedDict[tuple[str, int], Picture]()

    def strip(self) -> Picture:
        """The images that the page offers, in the order of `Explorer.info`."""
        return self.sheet([image.name for image in self._explorer.gallery.list()], 56)

    def sheet(self, names: Sequence[str], side: int) -> Picture:
        """These images row by row, COLUMNS beside each other, each at most so large."""
        small = [self.thumbnail(name, side) for name in names]
        rows = [small[n : n + COLUMNS] for n in range(0, len(small), COLUMNS)]
        return grid(rows, gap=0, colour=0) if small else np.zeros((1, 1, 3), np.uint8)

    def thumbnail(self, name: str, side: int) -> Picture:
        from PIL.Image import Resampling, fromarray

        with self._lock:
            if (name, side) in self._kept:
                self._kept.move_to_end((name, side))
                return self._kept[name, side]
        image = self._explorer.input(name)
        if max(image.shape[:2]) > side:
            image = np.array(fromarray(image).resize((side, side), Resampling.LANCZOS))
        with self._lock:
            self._kept[name, side] = image
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return image


def sheet_url(sheet: Picture, side: int) -> str:
    """A data URL: as PNG; of larger images as JPEG, since a page of photographs would be a megabyte."""
    from PIL.Image import fromarray

    if side <= _SMALL:
        return "data:image/png;base64," + b64encode(png(sheet)).decode()
    buffer = io.BytesIO()
    fromarray(sheet).save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + b64encode(buffer.getvalue()).decode()
