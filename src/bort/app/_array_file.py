"""A dataclass of arrays and counts in a file of the cache folder."""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from bort._files import write_atomically

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


def write(file: Path, record: DataclassInstance) -> None:
    """The whole file or none."""
    buffer = io.BytesIO()
    arrays = {field.name: np.asarray(getattr(record, field.name)) for field in fields(record)}
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # numpy's stubs take the names for its own parameters
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, buffer.getvalue())


def make_room(file: Path, pattern: str, most_bytes: int) -> None:
    """Removes the oldest files beside this one, until all together have at most so many bytes."""
    times, total = {}, 0
    for other in file.parent.glob(pattern):
        with suppress(FileNotFoundError):  # the scratch file of a process that has just ended its write
            times[other] = other.stat()
    for other, status in sorted(times.items(), key=lambda one: one[1].st_mtime, reverse=True):
        total += status.st_size
        if total > most_bytes and other != file:
            other.unlink(missing_ok=True)


def read(file: Path, wanted: R) -> R | None:
    """The record in the file; None if there is no such file, or if it is damaged or its arrays have other shapes and types
    than those of ``wanted``: then it is made anew. Damage inside an array is noticed by its CRC."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            found = {field.name: arrays[field.name] for field in fields(wanted)}
    except Exception:  # damaged files make zipfile and numpy raise anything
        return None
    for name, array in found.items():
        like = np.asarray(getattr(wanted, name))
        if array.shape != like.shape or array.dtype != like.dtype:
            return None
    return type(wanted)(**{name: array if array.ndim else array.item() for name, array in found.items()})
