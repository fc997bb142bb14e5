"""How strongly test images excite the channels of a layer, in arrays, and these in a file of the cache folder."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bort._files import write_atomically

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
    """The whole file or none. The oldest files make room."""
    buffer = io.BytesIO()
    arrays = {field.name: np.asarray(getattr(atlas, field.name)) for field in fields(atlas)}
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # numpy's stubs take the names for its own parameters
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, buffer.getvalue())
    total = 0
    for other in sorted(file.parent.glob("atlas-*.npz"), key=lambda one: one.stat().st_mtime, reverse=True):
        total += other.stat().st_size
        if total > _MOST_BYTES and other != file:
            other.unlink(missing_ok=True)


def read(file: Path, images: int, channels: int) -> Atlas | None:
    """None if there is no such file, or if it is damaged or of other images or channels: then it is made anew. Damage inside
    an array is noticed by its CRC."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            found = {field.name: arrays[field.name] for field in fields(Atlas)}
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        return None
    wanted = Atlas.empty(images, channels)
    for field in fields(Atlas):
        like = np.asarray(getattr(wanted, field.name))
        if found[field.name].shape != like.shape or found[field.name].dtype != like.dtype:
            return None
    known = int(found.pop("known"))
    return Atlas(**found, known=known) if 0 <= known <= images else None
