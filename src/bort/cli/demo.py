"""`bort demo`: a narrow ACNN-Small on 5,000 digits with SGD and with Bort-S, and a report on both."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bort._files import is_scratch
from bort._sample_sizes import SampleSizes
from bort._standard_output import rich_console
from bort.cli._errors import exit_on_error

if TYPE_CHECKING:
    from bort.report import Measured
    from bort.train import Recipe

RECIPES = {"SGD": "mnist5k-acnn-small-sgd", "Bort-S": "mnist5k-acnn-small-bort-s"}
"""By the names of the two runs, which are also their folders."""
SIZES = SampleSizes(evaluated=16, masks=500)
_FILES_OF_A_RUN = {"checkpoints", "environment.json", "history.jsonl", "lock", "recipe.json"}


def demo(out: Path = Path("runs/demo"), epochs: int | None = None, seed: int = 0, fresh: bool = False) -> None:
    """Train a small network on built-in digits with SGD and with Bort-S, then write a report on both.

    Args:
        out: the folder for the two runs and the report. What is there already is used again.
        epochs: passes over the 4,000 training digits, for each of the two; the recipe's own by default.
        seed: of the initial weights and the order of the digits, the same for both.
        fresh: begin anew.
    """
    with exit_on_error("demo"):
        from bort import train

        recipes = {name: train.recipes.get(recipe) for name, recipe in RECIPES.items()}
        if epochs is not None:
            recipes = {name: replace(recipe, epochs=epochs) for name, recipe in recipes.items()}
        run(out, {name: replace(recipe, seed=seed) for name, recipe in recipes.items()}, fresh=fresh)


def run(out: Path, recipes: Mapping[str, Recipe], *, fresh: bool = False, sizes: SampleSizes = SIZES) -> None:
    """The demo with two recipes, by the names of their runs: train what is not trained yet, and report on both. A signal or
    Ctrl-C ends the process with status 75; the next call goes on."""
    from bort.train import Interrupted

    try:
        if fresh:
            remove_demo(out, recipes)
        _train(out, recipes)
        _report(out, recipes, sizes)
    except (Interrupted, KeyboardInterrupt):
        print("\nStopped; what is trained is kept, and `bort demo` goes on from here.", file=sys.stderr)
        sys.exit(Interrupted.EXIT_CODE)


def _train(out: Path, recipes: Mapping[str, Recipe]) -> None:
    from bort import train

    console = rich_console(highlight=False, soft_wrap=True)
    optim = list(recipes.values())[-1].optim
    settings = f"lr={optim.lr}, momentum={optim.momentum}, weight_decay={optim.weight_decay}"
    console.print(
        "[bold]ACNN-Small, narrow, on 4,000 digits, tested on 1,000 others.[/] The only difference is one line:"
    )
    console.print(f"  SGD     torch.optim.SGD(model.parameters(), {settings})")
    console.print(f"  Bort-S  bort.BortS(model.parameters(), {settings}, constraint={optim.constraint})\n")
    for step, (name, recipe) in enumerate(recipes.items(), 1):
        console.print(f"[bold]{step} of 3[/]  training with {name}")
        try:
            trained = train.fit(replace(recipe, name=name, paper=None), out / name)
        except ValueError as error:
            what = error.args[0] if isinstance(error, train.StartedDifferently) else error
            raise ValueError(f"{what}\nTo begin anew: bort demo --fresh") from error
        last = trained.history[-1]
        console.print(f"        {last['accuracy']:.1%} of the test digits, {last['seconds']:.0f} s\n")


def _report(out: Path, recipes: Mapping[str, Recipe], sizes: SampleSizes) -> None:
    """The report, unless it is newer than the runs; and the two networks' audits and end results in the terminal."""
    from rich.markup import escape

    from bort.cli._progress import progress_bar
    from bort.measure import compare
    from bort.report import make, measured
    from bort.subject import resolve_all

    console = rich_console(highlight=False, soft_wrap=True)
    file = out / "report.html"
    subjects = measured(resolve_all([out / name for name in recipes]), sizes)
    if _is_up_to_date(file, [out / name for name in recipes]):
        console.print(f"[bold]3 of 3[/]  the report is there already: {escape(str(file))}\n")
    else:
        console.print("[bold]3 of 3[/]  opening both networks\n")
        with progress_bar() as say:
            report = make(subjects, say=say)
            report.write(file)
        for name, why in report.missing.items():
            console.print(f"{name} is left out: {why}", markup=False)
    print(compare({subject.name: subject.audit for subject in subjects}))
    ends = "; ".join(_end(subject) for subject in reversed(subjects))
    console.print(f"\n{ends}; report: {file}", style="bold", markup=False)


def _end(measured: Measured) -> str:
    """ "Bort-S: 96.4% / ratio 0.27" """
    accuracy, ratio = measured.subject.accuracy, measured.mean_ratio
    return f"{measured.name}: {accuracy or 0.0:.1%} / ratio {'not measured' if ratio is None else f'{ratio:.2f}'}"


def _is_up_to_date(report: Path, runs: list[Path]) -> bool:
    written = [file.stat().st_mtime for run in runs for file in (run / "checkpoints").rglob("*")]
    return report.exists() and report.stat().st_mtime > max(written)


def remove_demo(out: Path, recipes: Mapping[str, Recipe]) -> None:
    """Remove what a demo has written and nothing else: everything is checked before anything is removed."""
    from bort.report import FIGURES
    from bort.train import read_recipe

    for name in recipes:
        folder = out / name
        if not folder.exists():
            continue
        is_ours = all(entry.name in _FILES_OF_A_RUN or is_scratch(entry.name) for entry in folder.iterdir())
        if (folder / "recipe.json").exists():
            is_ours = is_ours and read_recipe(folder).name == name
        if not is_ours:
            raise ValueError(f"{folder} is not a run of the demo alone, so it is left as it is: choose another --out")
    report = out / "report.html"
    if report.exists() and b"Made by bort" not in report.read_bytes():
        raise ValueError(f"{report} is not a report of bort's, so it is left as it is: choose another --out")
    for name in recipes:
        shutil.rmtree(out / name, ignore_errors=True)
    report.unlink(missing_ok=True)
    for figure in FIGURES:
        for ending in (".png", ".svg"):
            (out / "report-figures" / f"{figure}{ending}").unlink(missing_ok=True)
