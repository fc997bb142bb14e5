"""What is known of the test images, in arrays, and these in a file of the cache folder."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bort._files import write_atomically
from bort.report import Measured

FORMAT: Final = 1
"""Of the files: those with another number are made anew."""
_MOST_FILES: Final = 100


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
    buffer = io.BytesIO()
    arrays = {field.name: np.asarray(getattr(index, field.name)) for field in fields(index)}
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # numpy's stubs take the names for its own parameters
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, buffer.getvalue())
    newest_first = sorted(file.parent.glob("index-*.npz"), key=lambda other: other.stat().st_mtime, reverse=True)
    for old in newest_first[_MOST_FILES:]:
        old.unlink(missing_ok=True)


def read(file: Path, count: int) -> RunIndex | None:
    """None if there is no such file, or if it is damaged or of other images: then it is made anew."""
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as arrays:
            found = {field.name: arrays[field.name] for field in fields(RunIndex)}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    wanted = RunIndex.empty(count)
    for field in fields(RunIndex):
        like = np.asarray(getattr(wanted, field.name))
        if found[field.name].shape != like.shape or found[field.name].dtype.kind != like.dtype.kind:
            return None
    predicted, correlated = int(found.pop("predicted")), int(found.pop("correlated"))
    if not (0 <= predicted <= count and 0 <= correlated <= count):
        return None
    return RunIndex(**found, predicted=predicted, correlated=correlated)
