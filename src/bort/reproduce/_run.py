"""Run what is missing of a table."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from bort import _environment, train
from bort._file_lock import held
from bort.reproduce._registry import get
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Trained
from bort.train import InUse, NotFinite, OtherRecipe, Recipe, Run, Runtime

Fit = Callable[[Recipe, Path, Runtime], Run]
"""As :func:`bort.train.fit`: trains a recipe in a folder, or goes on with the run that is there."""
_WAIT_SECONDS: Final = 5.0


def reproduce(
    table: str,
    out: Path,
    runs: Path,
    runtime: Runtime,
    *,
    quick: bool = False,
    seeds: tuple[int, ...] | None = None,
    only: str = "",
    fit: Fit = train.fit,
    say: Callable[[str], None] = print,
) -> list[Path]:
    """Run the experiments of a table that have no result file yet, or one of another recipe, and return the files of all of
    them.

    A run that was interrupted is continued. A training that diverges is a result too: the table shows it as failed. Several
    processes may share a table: each takes rows that no other one is at.

    Args:
        table: its name, one of ``bort.reproduce.TABLES``.
        out: the folder of results; files go to out/table.
        runs: the folder for the trainings, which tables share: one folder for each recipe and seed.
        runtime: where and how the trainings run.
        quick: the same in small, on the built-in digits.
        seeds: instead of the table's own.
        only: run only what has this in the name of its file.
        fit: the function that trains.
        say: called with lines on the progress.

    Example:
        >>> from pathlib import Path
        >>> def diverging(recipe, out, runtime):  # in the place of a training of minutes
        ...     raise train.NotFinite("the loss is NaN at step 3")
        >>> how = {"quick": True, "only": "lenet-sgd", "fit": diverging, "say": lambda line: None}
        >>> (file,) = reproduce.reproduce("table1", Path("results"), Path("runs"), train.Runtime(), **how)
        >>> file.name, reproduce.Result.read(file.parent)[0].failed
        ('mnist5k-lenet-sgd-seed0.json', 'the loss is NaN at step 3')
    """
    experiments = [e for e in get(table).seeded(quick, seeds or None) if only in e.stem]
    if not experiments:
        raise ValueError(f"no row of {table} has {only!r} in its name")
    files = [out / _file(table, experiment) for experiment in experiments]
    missing = [e for e, file in zip(experiments, files, strict=True) if not _is_made(e, file, say)]
    say(f"{table}: {len(experiments) - len(missing)} of {len(experiments)} results are there, {len(missing)} to make")
    fit, begun = _setting_aside(fit, say), set[str]()

    def make(experiment: Experiment, title: str) -> None:
        with _claimed(experiment, runs):
            if _is_made(experiment, out / _file(table, experiment), lambda _: None):
                say(f"{title} has been made by another process")
                return
            if title not in begun:
                begun.add(title)
                say(title)
            _run(table, experiment, out, runs, runtime, quick=quick, fit=fit).write(out)

    _in_any_order(
        [(experiment, f"{table} {n}/{len(missing)}: {experiment.stem}") for n, experiment in enumerate(missing, 1)],
        make,
        say,
    )
    return files


def _in_any_order(
    rows: list[tuple[Experiment, str]], make: Callable[[Experiment, str], None], say: Callable[[str], None]
) -> None:
    """Make all rows; those that another process is at come last, when it has finished with them."""
    said: set[str] = set()
    while rows:
        busy = []
        for experiment, title in rows:
            try:
                make(experiment, title)
            except InUse as error:
                if _ranks() > 1:  # only the first of them knows; the others wait for it in this row
                    raise
                busy.append((experiment, title))
                if title not in said:
                    said.add(title)
                    say(f"{title} later: {error}")
        if len(busy) == len(rows):
            time.sleep(_WAIT_SECONDS)
        rows = busy


@contextmanager
def _claimed(experiment: Experiment, runs: Path) -> Iterator[None]:
    """Inside, no other process trains or measures this recipe with this seed, also for another table. The ranks of one
    training go through the rows together."""
    if _ranks() > 1:
        yield
        return
    folder = _folder(experiment.recipe, runs)
    runs.mkdir(parents=True, exist_ok=True)
    with held(runs / f".{folder.name}.lock", "another process is at it"):
        yield


def _setting_aside(fit: Fit, say: Callable[[str], None]) -> Fit:
    """The same, which moves a run of another recipe out of its way."""

    def fitted(recipe: Recipe, folder: Path, runtime: Runtime) -> Run:
        try:
            return fit(recipe, folder, runtime)
        except OtherRecipe:
            if _ranks() > 1:  # only one of them knows
                raise
            asides = (folder.with_name(f"{folder.name}-before-{number}") for number in itertools.count(1))
            aside = next(path for path in asides if not path.exists())
            folder.rename(aside)
            say(f"{folder} has a training of another recipe: it is now {aside}")
            return fit(recipe, folder, runtime)

    return fitted


def _ranks() -> int:
    """How many processes train together, by torchrun."""
    return int(os.environ.get("WORLD_SIZE", 1))


def _run(
    table: str, experiment: Experiment, out: Path, runs: Path, runtime: Runtime, *, quick: bool, fit: Fit
) -> Result:
    """Train and measure."""
    recipe, baseline_recipe = experiment.recipe, experiment.baseline
    file = _file(table, experiment)
    failed, metrics, start = "", {}, time.perf_counter()
    try:
        run = fit(recipe, _folder(recipe, runs), runtime)
        baseline = None if baseline_recipe is None else fit(baseline_recipe, _folder(baseline_recipe, runs), runtime)
        start = time.perf_counter()
        pictures = (out / file).with_suffix("")
        metrics = experiment.measure(Trained(run, baseline, _device(runtime), runtime.data_root, pictures))
    except NotFinite as failure:
        failed = str(failure)
    seconds = time.perf_counter() - start
    trained = _environment_of(_folder(recipe, runs))
    here = {"hardware": _environment.hardware(), "commit": _environment.commit()}
    return Result(
        table=table,
        recipe=recipe,
        metrics=metrics,
        file=file,
        note=experiment.note,
        failed=failed,
        quick=quick,
        command=_command(table, experiment, runtime, quick=quick),
        measuring_seconds=round(seconds, 2),
        data={"name": recipe.data.name, "fingerprint": trained.get("data", {}).get("fingerprint", "")},
        hardware=trained.get("hardware", here["hardware"]),
        versions=trained.get("versions", _environment.versions()),
        commit=trained.get("commit", here["commit"]),
        measured=here,
        date=time.strftime("%Y-%m-%d"),
    )


def _file(table: str, experiment: Experiment) -> str:
    """Of its result, inside the folder of results."""
    return f"{table}/{experiment.stem}.json"


def _folder(recipe: Recipe, runs: Path) -> Path:
    """Of its training: tables that need the same one share it."""
    return runs / f"{recipe.name}-seed{recipe.seed}"


def _command(table: str, experiment: Experiment, runtime: Runtime, *, quick: bool) -> str:
    """What to type to get this result alone; with torch.compile if it was, which rounds differently."""
    command = f"bort reproduce {table} --only {experiment.stem}" + (" --quick" if quick else "")
    seed = experiment.recipe.seed
    command += "" if seed in get(table).seeds_for(experiment, quick) else f" --seeds {seed}"
    return command + (" --compile" if runtime.compile else "")


def _is_made(experiment: Experiment, file: Path, say: Callable[[str], None]) -> bool:
    """Whether the result is there. One of another recipe under the same name, as of an earlier version, does not count."""
    if not file.exists():
        return False
    if Result.read_file(file).recipe == experiment.recipe:
        return True
    say(f"{file} is of another recipe than {experiment.recipe.name} is now: it is made again")
    return False


def _environment_of(folder: Path) -> dict[str, Any]:
    """Where a run was last started, which may have been another day and machine; empty if the folder does not say. Read
    from its file because a training that diverged returns no run."""
    file = folder / "environment.json"
    starts: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    return starts[-1] if starts else {}


def _device(runtime: Runtime) -> str:
    return ("cuda" if torch.cuda.is_available() else "cpu") if runtime.device == "auto" else runtime.device
