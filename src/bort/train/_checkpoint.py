"""Checkpoints on disk: safetensors and JSON, no pickle; written atomically; damage is detected and named.

A checkpoint is a folder ``step-000000123`` with ``tensors.safetensors``, ``state.json`` and ``manifest.json``, which has the
SHA-256 of the other two. It is written under another name, ``.writing-…``, and renamed when all of it is on the disk. So a
process that is killed at any moment leaves the earlier checkpoints as they were, and at most a folder ``.writing-…``, which
the next save removes.
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
        remove_incomplete(folder)
        path = _unused_name(folder, step)
        scratch = folder / f"{_WRITING}{step:09d}-{os.getpid()}"
        scratch.mkdir()
        try:
            _write(scratch, step, state)
            os.replace(scratch, path)
            _flush(folder)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    except OSError as error:
        raise OSError(
            error.errno, f"no checkpoint of step {step} in {folder}: {error.strerror or error}; earlier ones are intact"
        ) from error
    for old in [other for other in _all(folder) if other != path][: -keep + 1 or None]:
        shutil.rmtree(old, ignore_errors=True)
    return path


def load(folder: Path) -> Checkpoint | None:
    """The newest undamaged checkpoint, or None if there is no checkpoint. Damaged ones are a warning; if all are damaged, a
    ValueError."""
    damage = []
    for path in reversed(_all(folder)):
        try:
            checkpoint = read(path)
        except (OSError, ValueError) as error:
            damage.append(str(error))
            continue
        for message in damage:
            warnings.warn(f"{message}. Going on from {checkpoint.path.name}.", stacklevel=2)
        return checkpoint
    if damage:
        raise ValueError(f"every checkpoint in {folder} is damaged: {'; '.join(damage)}")
    return None


def read(path: Path) -> Checkpoint:
    """One checkpoint, checked against its digests. A ValueError names the file that is damaged."""
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
        digest = sha256(file)
        if digest != digests.get(name):
            raise ValueError(f"{file} is damaged: its SHA-256 is {digest}, it was written as {digests.get(name)}")
    try:
        tensors = load_file(path / _TENSORS)
        state = _unpack(json.loads((path / _STATE).read_text()), tensors)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return Checkpoint(path, step, state)


def remove_incomplete(folder: Path) -> None:
    """Remove what a killed process has left half written."""
    for path in folder.glob(f"{_WRITING}*"):
        shutil.rmtree(path, ignore_errors=True)


def set_aside(folder: Path, newest: Path) -> None:
    """Rename the checkpoints newer than the one that a run goes on from. They are damaged, and as the newest ones they would
    be kept while good ones are removed."""
    for path in _all(folder):
        if path.name > newest.name:
            os.replace(path, path.with_name(f"damaged-{path.name}-{os.getpid()}"))


def _unused_name(folder: Path, step: int) -> Path:
    """A name for the step that sorts after those in use: a step at the end of an epoch may be saved before and after the
    epoch's test."""
    name = f"step-{step:09d}"
    taken = {path.name for path in folder.glob(f"{name}*")}
    candidates = (name, *(f"{name}-{number:03d}" for number in range(1, 1000)))
    return folder / next(candidate for candidate in candidates if candidate not in taken)


def _all(folder: Path) -> list[Path]:
    """From the oldest to the newest."""
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
    """Write the folder itself to the disk: renames in it survive a power failure only then."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The value as JSON: tensors go into ``tensors`` and leave their key; dicts become lists of pairs, since keys in JSON can
    only be text."""
    if isinstance(value, Tensor):
        key = f"{len(tensors)}{name}"  # numbered, since the names {"a.b": …} and {"a": {"b": …}} would be the same
        tensor = value.detach().contiguous()  # on its device, which rearranges faster than the CPU
        tensors[key] = tensor.clone() if tensor.device.type == "cpu" else tensor.cpu()
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
