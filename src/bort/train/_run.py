"""A run on disk: recipe.json, environment.json, history.jsonl and checkpoints/ in one folder, one writer at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bort import _environment, nets
from bort.data import Dataset, Folder, View
from bort.data import load as load_data
from bort._files import write_atomically
from bort.train import _checkpoint
from bort.train._history import History
from bort.train._schema import Recipe, differences

_RECIPE, _ENVIRONMENT, _HISTORY, _CHECKPOINTS, _LOCK = (
    "recipe.json",
    "environment.json",
    "history.jsonl",
    "checkpoints",
    "lock",
)


@dataclass(frozen=True)
class Run:
    """A training on disk, finished or not."""

    path: Path
    recipe: Recipe
    history: list[dict[str, Any]]
    """One record an epoch: loss, accuracy, residual, σ range, seconds, …"""
    environment: list[dict[str, Any]]
    """One record for each time it was started: versions, hardware, commit, data."""
    model: nn.Module
    """The network of the newest checkpoint, on the CPU, in eval mode."""

    def view(self, data_root: Path | None = None) -> View:
        """How the network sees an image: as it was written down when the run was started, else from its data."""
        known = self.environment[-1].get("data", {}) if self.environment else {}
        if {"mean", "std", "class_names"} <= known.keys():
            size, channels = self.recipe.data.image_size, self.recipe.data.channels
            return View(size, channels, tuple(known["mean"]), tuple(known["std"]), tuple(known["class_names"]))
        return data_of(self.recipe, data_root).view(self.recipe.data.image_size)

    def examples(self, count: int, data_root: Path | None = None) -> tuple[Tensor, Tensor]:
        """Test images as the network was trained to see them, (count, C, H, W), and labels, spread evenly over the test
        set."""
        data = data_of(self.recipe, data_root)
        view = data.view(self.recipe.data.image_size)
        return data.examples(count, view, skip_unreadable=self.recipe.data.corrupt == "skip")

    @property
    def is_complete(self) -> bool:
        return len(self.history) >= self.recipe.epochs

    @property
    def accuracy(self) -> float | None:
        """On the test images, after the last recorded epoch."""
        return self.history[-1]["accuracy"] if self.history else None


def build(recipe: Recipe) -> nn.Module:
    """The recipe's network, with the weights it starts from if torch was seeded."""
    net, data = recipe.net, recipe.data
    options: dict[str, Any] = {}
    if net.width != 1:
        options |= {"width": net.width, "narrowest": net.narrowest}
    usual = {"activation": "relu", "pool": "max", "last": "linear"}
    options |= {name: getattr(net, name) for name in usual if getattr(net, name) != usual[name]}
    if net.drop_path:
        options["drop_path_rate"] = net.drop_path
    shape = {"channels": data.channels, "classes": data.classes, "image_size": data.image_size}
    try:
        return nets.create(net.name, **shape, **options)
    except TypeError as error:  # such as a width for a network of one width
        raise ValueError(f"net.name={net.name!r} cannot be made with {options}: {error}") from error


def data_of(recipe: Recipe, root: Path | None) -> Dataset | Folder:
    """The recipe's data, to be normalised as it says."""
    data = load_data(recipe.data.name, root)
    return data if recipe.data.normalise or not isinstance(data, Dataset) else dataclasses.replace(data, raw=True)


def load(out: str | os.PathLike[str]) -> Run:
    """The run in a folder, with the network of its newest good checkpoint."""
    path = Path(out)
    recipe = recipe_of(path)
    found = _checkpoint.load(path / _CHECKPOINTS)
    if found is None:
        raise FileNotFoundError(f"the run in {path} has no checkpoint yet; start it again to go on")
    model = build(recipe)
    model.load_state_dict(found.state["model"])
    history = History(path / _HISTORY).read()[: found.state["recorded"]]
    return Run(path, recipe, history, _read_json(path / _ENVIRONMENT), model.eval())


def recipe_of(path: Path) -> Recipe:
    """The recipe in a run's folder, or in a file."""
    file = path / _RECIPE if path.is_dir() else path
    if not file.exists():
        what = f"it has no {_RECIPE}" if path.is_dir() else "there is no such file"
        raise FileNotFoundError(f"{path} is not a run or a recipe: {what}")
    return Recipe.from_dict(_read_json(file))


class RunFolder:
    """The folder of a run that this process may write to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.history = History(path / _HISTORY)
        self.checkpoints = path / _CHECKPOINTS

    def require(self) -> None:
        """Refuse to write into a folder that has been removed meanwhile."""
        if not (self.path / _RECIPE).exists():
            raise FileNotFoundError(f"the run's folder {self.path} has been removed or emptied while it was running")

    def start(self, recipe: Recipe, facts: dict[str, Any]) -> None:
        """The recipe, and one more record in environment.json."""
        _write_json(self.path / _RECIPE, recipe.to_dict())
        file = self.path / _ENVIRONMENT
        starts = _read_json(file) if file.exists() else []
        here = {"started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **facts}
        here |= {
            "hardware": _environment.hardware(),
            "versions": _environment.versions(),
            "commit": _environment.commit(),
        }
        _write_json(file, [*starts, here])


@contextmanager
def claimed(path: Path, recipe: Recipe, processes: int, *, force: bool) -> Iterator[RunFolder]:
    """The folder, for this run alone. Refused: a folder of something else, one in use, another recipe or world size."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; a run needs a folder")
    ours = {_LOCK, "recipe.writing"}  # what a start that was killed may leave
    if path.is_dir() and {entry.name for entry in path.iterdir()} - ours and not (path / _RECIPE).exists():
        raise ValueError(f"{path} has files in it but is not a run: choose another folder, or an empty one")
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / _LOCK).open("a+")
    except OSError as error:
        raise OSError(error.errno, f"cannot write a run into {path}: {error.strerror}") from error
    with lock:
        _lock(lock, path)
        try:
            if (path / _RECIPE).exists():
                _compare(path, recipe, processes, force=force)
                _checkpoint.sweep(path / _CHECKPOINTS)
            yield RunFolder(path)
        finally:
            if not (path / _RECIPE).exists():  # it has not come to a start
                for name in ours:
                    (path / name).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    path.rmdir()


def _lock(lock: Any, path: Path) -> None:
    import fcntl  # kept by the process and gone with it, however it ends

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        raise RuntimeError(
            f"another run is writing into {path} ({lock.read().strip() or 'just started'}); wait for it, or choose another "
            "folder"
        ) from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()} on {os.uname().nodename}")
    lock.flush()


def _compare(path: Path, recipe: Recipe, processes: int, *, force: bool) -> None:
    changed = differences(recipe_of(path), recipe)
    environment = path / _ENVIRONMENT
    try:
        before = _read_json(environment)[-1]["processes"] if environment.exists() else processes
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{environment} is damaged: it has no start with a number of processes") from error
    if before != processes:
        changed.append(f"processes: {before} → {processes}")
    if changed and not force:
        raise ValueError(
            f"the run in {path} was started differently: {'; '.join(changed)}. Start it as it was, choose another folder, "
            "or go on with the new settings: --force"
        )


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error


def _write_json(file: Path, value: Any) -> None:
    write_atomically(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
