"""How strongly test images excite the channels of a layer, in arrays, and these in a file of the cache folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bort.app import _array_file

FORMAT: Final = 1
"""Of the files: those with another number are made anew."""
_MOST_BYTES: Final = 2**30  # of all files together


@dataclass
class Atlas:
    """For each test image and each channel of one layer of one network; the first ``known`` images are known."""

    values: NDArray[np.float32]
    """(images, channels): the channel's largest activation; NaN for an image that could not be read."""
    places: NDArray[np.int32]
    """(images, channels): where it is in the flattened map."""
    labels: NDArray[np.int64]
    """(images,): the class of the image, -1 if it is not known."""
    classes: NDArray[np.int64]
    """(images,): the class that the network predicts."""
    known: int = 0

    @classmethod
    def empty(cls, images: int, channels: int) -> Atlas:
        unknown = np.full(images, -1, np.int64)
        values, places = np.full((images, channels), np.nan, np.float32), np.zeros((images, channels), np.int32)
        return cls(values, places, unknown, unknown.copy())

    @property
    def channels(self) -> int:
        return int(self.values.shape[1])

    @property
    def images(self) -> int:
        """How many it will be of."""
        return len(self.values)


def write(file: Path, atlas: Atlas) -> None:
    """The oldest files make room."""
    _array_file.write(file, atlas)
    _array_file.make_room(file, "atlas-*", _MOST_BYTES)  # also what killed processes have left half written


def read(file: Path, images: int, channels: int) -> Atlas | None:
    """None if there is none of these images and channels."""
    found = _array_file.read(file, Atlas.empty(images, channels))
    return found if found is not None and 0 <= found.known <= images else None
