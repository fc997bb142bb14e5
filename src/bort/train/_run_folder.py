"""The folder of a run: recipe.json, environment.json, history.jsonl and checkpoints/, written by one process at a time."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bort import _environment
from bort._file_lock import held
from bort._files import is_scratch, write_atomically
from bort.train import _checkpoint
from bort.train._history import History
from bort.train._schema import Recipe, differences
from bort.train._world import World

_RECIPE, _ENVIRONMENT, _HISTORY, CHECKPOINTS, _LOCK = (
    "recipe.json",
    "environment.json",
    "history.jsonl",
    "checkpoints",
    "lock",
)


class RunFolder:
    """Where the files of a run are. Only the process that has `claimed` the folder writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.history = History(path / _HISTORY)
        self.checkpoints = path / CHECKPOINTS

    def environment(self) -> list[dict[str, Any]]:
        """One record for each time the run was started."""
        records: list[dict[str, Any]] = _read_json(self.path / _ENVIRONMENT)
        return records

    def start(self, recipe: Recipe, facts: dict[str, Any]) -> None:
        """Write the recipe, and one more record in environment.json."""
        _write_json(self.path / _RECIPE, recipe.to_dict())
        file = self.path / _ENVIRONMENT
        earlier = self.environment() if file.exists() else []
        start = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **facts,
            "hardware": _environment.hardware(),
            "versions": _environment.versions(),
            "commit": _environment.commit(),
        }
        _write_json(file, [*earlier, start])

    def require(self) -> None:
        """Refuse to write into a folder that has been removed while the training ran."""
        if not (self.path / _RECIPE).exists():
            raise FileNotFoundError(f"the run's folder {self.path} has been removed or emptied while it was running")


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """The recipe in the folder of a run, or in a JSON file.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> recipe = train.recipes.get("mnist5k-lenet-sgd")
        >>> _ = Path("recipe.json").write_text(json.dumps(recipe.to_dict()))
        >>> train.read_recipe(Path("recipe.json")) == recipe
        True
    """
    place = Path(path)
    file = place / _RECIPE if place.is_dir() else place
    if not file.exists():
        reason = f"it has no {_RECIPE}" if place.is_dir() else "there is no such file"
        raise FileNotFoundError(f"{place} is not a run or a recipe: {reason}")
    if place.is_file() and place.suffix != ".json":
        raise ValueError(
            f"{place} is neither the folder of a run nor a recipe (.json). A file of weights does not say which network they "
            "belong to: write a function that builds the network and loads them, and name it, package.module:function"
        )
    return Recipe.from_dict(_read_json(file))


@contextmanager
def claimed(path: Path, recipe: Recipe, world: World, *, force: bool) -> Iterator[RunFolder]:
    """The folder, locked for this run by its first process. Refused: a folder that is in use, that holds something else, or
    (unless forced) a run with another recipe or number of processes."""
    if not world.is_first:
        yield RunFolder(path)
        return
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; a run needs a folder")
    is_run = (path / _RECIPE).exists()
    if path.is_dir() and not is_run and not all(e.name == _LOCK or is_scratch(e.name) for e in path.iterdir()):
        raise ValueError(f"{path} has files in it but is not a run: choose another folder, or an empty one")
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / _LOCK).open("a").close()
    except OSError as error:
        raise OSError(error.errno, f"cannot write a run into {path}: {error.strerror}") from error
    with held(path / _LOCK, f"another run is writing into {path}", "; wait for it, or choose another folder"):
        try:
            if (path / _RECIPE).exists():
                _compare(path, recipe, world.size, force=force)
                _checkpoint.remove_incomplete(path / CHECKPOINTS)
                _remove_scratch(path)
            yield RunFolder(path)
        finally:
            if not (path / _RECIPE).exists():  # the run failed before it was started: leave nothing
                with contextlib.suppress(OSError):
                    _remove_scratch(path)
                    (path / _LOCK).unlink()
                    path.rmdir()


def _remove_scratch(path: Path) -> None:
    """What processes that were killed have left of a write."""
    for entry in list(path.iterdir()):
        if is_scratch(entry.name):
            entry.unlink(missing_ok=True)


class StartedDifferently(ValueError):
    """The folder has a run of another recipe, other data or another number of processes. Of its two ``args`` the first is
    what is different, and the second advice on a call of `fit`: each command gives its own.

    Example:
        >>> print(train.StartedDifferently("the run in runs/first was started with 2 processes", "Start 2 processes"))
        the run in runs/first was started with 2 processes. Start 2 processes
    """

    def __str__(self) -> str:
        return ". ".join(self.args)


class OtherRecipe(StartedDifferently):
    """The folder has a run of another recipe.

    Example:
        >>> from dataclasses import replace
        >>> recipe = replace(train.recipes.get("mnist5k-lenet-bort-s"), epochs=1, batch=1000)
        >>> run = train.fit(recipe, "runs/first", train.Runtime(device="cpu"))
        mnist5k-lenet-bort-s  epoch 1/1  loss ...
        >>> train.fit(replace(recipe, epochs=2), "runs/first", train.Runtime(device="cpu"))
        Traceback (most recent call last):
        bort.train._run_folder.OtherRecipe: the run in runs/first was started differently: epochs: 1 → 2. ...
    """


def _compare(path: Path, recipe: Recipe, processes: int, *, force: bool) -> None:
    changed = differences(read_recipe(path), recipe)
    refusal = OtherRecipe if changed else StartedDifferently
    environment = path / _ENVIRONMENT
    try:
        before = _read_json(environment)[-1]["processes"] if environment.exists() else processes
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{environment} is damaged: it has no start with a number of processes") from error
    if before != processes:
        changed.append(f"processes: {before} → {processes}")
    if changed and not force:
        raise refusal(
            f"the run in {path} was started differently: {'; '.join(changed)}",
            "Start it as it was, choose another folder, or go on with the new settings: force=True",
        )


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error


def _write_json(file: Path, value: Any) -> None:
    write_atomically(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
