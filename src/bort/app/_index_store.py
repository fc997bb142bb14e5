"""What is known of the test images, in arrays, and these in a file of the cache folder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bort.app import _array_file
from bort.report import Measured

FORMAT: Final = 1
"""Of the files: those with another number are made anew."""
_MOST_BYTES: Final = 2**26  # of all files together; one of 5,000 images has 140 kB


@dataclass
class RunIndex:
    """What one run's network says of each test image; the first ``predicted`` and ``correlated`` of them are known."""

    labels: NDArray[np.int64]
    """The class of the image, in the numbers of this network; -1 if it is not known."""
    classes: NDArray[np.int64]
    """The class that the network predicts; -1 for an image that could not be read."""
    probabilities: NDArray[np.float32]
    """Of that class."""
    of_label: NDArray[np.float32]
    """The probability of the image's own class; NaN if that is not known."""
    correlations: NDArray[np.float32]
    """Of the reconstruction from the top layer with the image; NaN where none is known."""
    predicted: int = 0
    correlated: int = 0

    @classmethod
    def empty(cls, count: int) -> RunIndex:
        unknown, no_number = np.full(count, -1, np.int64), np.full(count, np.nan, np.float32)
        return cls(unknown, unknown.copy(), no_number, no_number.copy(), no_number.copy())


def fingerprint(own: Measured, count: int) -> str:
    """SHA-256 over what the numbers depend on: the network and its weights, its view, the images and their order. Empty if
    the images cannot tell whether they have changed."""
    images = own.image_set.fingerprint
    if not images:
        return ""
    digest = hashlib.sha256(f"{FORMAT} {images} {own.view} {own.model}\n".encode())
    digest.update(own.order[:count].numpy().tobytes())
    for name, weight in own.model.state_dict().items():
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}\n".encode())
        digest.update(weight.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()


def write(file: Path, index: RunIndex) -> None:
    """The oldest files make room."""
    _array_file.write(file, index)
    _array_file.make_room(file, "index-*", _MOST_BYTES)  # also what killed processes have left half written


def read(file: Path, count: int) -> RunIndex | None:
    """None if there is none of so many images."""
    found = _array_file.read(file, RunIndex.empty(count))
    return found if found is not None and 0 <= found.predicted <= count and 0 <= found.correlated <= count else None
