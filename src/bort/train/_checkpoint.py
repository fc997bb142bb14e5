"""Checkpoints that survive anything: safetensors and JSON, no pickle; whole or not there; damaged ones named.

A checkpoint is a folder ``step-000000123`` with ``tensors.safetensors``, ``state.json`` and ``manifest.json``, which has the
SHA-256 of the other two. It is written beside its place and moved there when all of it is on the disk, so a process that is
killed at any moment leaves the checkpoints before it as they were, and at most a folder ``.writing-…`` that the next one
sweeps away.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bort._files import sha256

_TENSORS, _STATE, _MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_WRITING = ".writing-"
_TENSOR_KEY = "__tensor__"


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    step: int
    state: Any
    """What was saved: a tree of dicts and lists with tensors and plain values in it."""


def save(folder: Path, step: int, state: Any, keep: int = 3) -> Path:
    """Write a checkpoint; then remove all but the newest ``keep``. On any failure the earlier ones are untouched."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        place = _free(folder, step)
        scratch = folder / f"{_WRITING}{step:09d}-{os.getpid()}"
        scratch.mkdir()
        try:
            _write(scratch, step, state)
            os.replace(scratch, place)
            _flush(folder)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    except OSError as error:
        raise OSError(
            error.errno, f"no checkpoint of step {step} in {folder}: {error.strerror or error}; earlier ones are intact"
        ) from error
    for old in [path for path in _found(folder) if path != place][: -keep + 1 or None]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def load(folder: Path) -> Checkpoint | None:
    """The newest good checkpoint, or None where there has been none. Damaged ones are warned of; if all are, an error."""
    damage = []
    for path in reversed(_found(folder)):
        try:
            found = read(path)
        except (OSError, ValueError) as error:
            damage.append(str(error))
            continue
        for message in damage:
            warnings.warn(f"{message}. Going on from {found.path.name}.", stacklevel=2)
        return found
    if damage:
        raise ValueError(f"every checkpoint in {folder} is damaged: {'; '.join(damage)}")
    return None


def read(path: Path) -> Checkpoint:
    """One checkpoint, checked; a ValueError names the file that is not what was written."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        step, digests = int(manifest["step"]), dict(manifest["sha256"])
    except FileNotFoundError as error:
        raise ValueError(f"{path} has no {_MANIFEST}: it is not a checkpoint of bort's") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path / _MANIFEST} is damaged: {error}") from error
    for name in (_TENSORS, _STATE):
        file = path / name
        if not file.exists():
            raise ValueError(f"{file} is missing")
        found = sha256(file)
        if found != digests.get(name):
            raise ValueError(f"{file} is damaged: its SHA-256 is {found}, it was written as {digests.get(name)}")
    try:
        tensors = load_file(path / _TENSORS)
        state = _unpack(json.loads((path / _STATE).read_text()), tensors)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return Checkpoint(path, step, state)


def sweep(folder: Path) -> None:
    """Remove what a killed process has left half written."""
    for path in folder.glob(f"{_WRITING}*"):
        shutil.rmtree(path, ignore_errors=True)


def set_aside(folder: Path, newest: Path) -> None:
    """Rename what is newer than the checkpoint that a run goes on from: it is damaged, and must not outlive good ones."""
    for path in _found(folder):
        if path.name > newest.name:
            os.replace(path, path.with_name(f"damaged-{path.name}-{os.getpid()}"))


def _free(folder: Path, step: int) -> Path:
    """A name that is not taken and sorts last: a step is saved again when its epoch has been recorded."""
    name = f"step-{step:09d}"
    taken = {path.name for path in folder.glob(f"{name}*")}
    return folder / next(each for each in (name, *(f"{name}-{i:03d}" for i in range(1, 1000))) if each not in taken)


def _found(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def _write(scratch: Path, step: int, state: Any) -> None:
    from safetensors.torch import save as to_bytes

    tensors: dict[str, Tensor] = {}
    tree = _pack(state, "", tensors)
    contents = {_TENSORS: to_bytes(tensors), _STATE: json.dumps(tree).encode()}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    contents[_MANIFEST] = json.dumps({"step": step, "sha256": digests}, indent=2).encode()
    for name, content in contents.items():
        with (scratch / name).open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    _flush(scratch)


def _flush(folder: Path) -> None:
    """A rename is on the disk when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A tree that JSON can hold: tensors go into ``tensors``; dicts become lists of pairs: JSON's keys are only text."""
    if isinstance(value, Tensor):
        key = f"{len(tensors)}{name}"  # numbered: "a.b" may be one key or two
        whole = value.detach().contiguous()  # in order before it leaves the device, which is faster at that
        tensors[key] = whole.clone() if whole.device.type == "cpu" else whole.cpu()
        return {_TENSOR_KEY: key}
    if isinstance(value, dict):
        return {"dict": [[key, _pack(item, f"{name}.{key}", tensors)] for key, item in _items(value, name)]}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_pack(item, f"{name}.{index}", tensors) for index, item in enumerate(value)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"{name.lstrip('.')} is a {type(value).__name__}: a checkpoint holds tensors, numbers, text, dicts and lists"
    )


def _items(value: dict[Any, Any], name: str) -> Iterator[tuple[Any, Any]]:
    for key, item in value.items():
        if isinstance(key, bool) or not isinstance(key, (int, str)):
            raise TypeError(f"{name.lstrip('.')} has a key {key!r}: a checkpoint's keys are text or whole numbers")
        yield key, item


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == _TENSOR_KEY:
        return tensors[content]
    if kind == "dict":
        return {key: _unpack(item, tensors) for key, item in content}
    items = [_unpack(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items
