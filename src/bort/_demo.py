"""A narrow ACNN-Small on 5,000 digits with SGD and with Bort-S, and a report that opens both."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from bort import train
from bort.cli._progress import working
from bort.measure import compare
from bort.report import FIGURES, SampleSizes, make, subjects
from bort.report._subject import number
from bort.train._run import recipe_of

NAMES = {"SGD": "mnist5k-acnn-small-sgd", "Bort-S": "mnist5k-acnn-small-bort-s"}
AMOUNT = SampleSizes(evaluated=16, masks=500)


def run(out: Path, epochs: int | None, seed: int, *, fresh: bool, amount: SampleSizes = AMOUNT) -> None:
    """What `bort demo` shows."""
    console = Console(highlight=False, soft_wrap=True)
    if fresh:
        _sweep(out)
    optim = train.recipes.get(NAMES["Bort-S"]).optim
    settings = f"lr={optim.lr}, momentum={optim.momentum}, weight_decay={optim.weight_decay}"
    console.print(
        "[bold]ACNN-Small, narrow, on 4,000 digits, tested on 1,000 others.[/] The only difference is one line:"
    )
    console.print(f"  SGD     torch.optim.SGD(model.parameters(), {settings})")
    console.print(f"  Bort-S  bort.BortS(model.parameters(), {settings}, constraint={optim.constraint})\n")
    for step, (name, recipe_name) in enumerate(NAMES.items(), 1):
        recipe = train.recipes.get(recipe_name)
        recipe = replace(recipe, name=name, epochs=recipe.epochs if epochs is None else epochs, seed=seed, paper=None)
        console.print(f"[bold]{step} of 3[/]  training with {name}")
        try:
            found = train.fit(recipe, out / name)
        except ValueError as error:
            raise ValueError(f"{error}\nTo begin anew: bort demo --fresh") from error
        last = found.history[-1]
        console.print(f"        {last['accuracy']:.1%} of the test digits, {last['seconds']:.0f} s\n")
    report = out / "report.html"
    looked = subjects([out / name for name in NAMES], amount)
    if _is_up_to_date(report, out):
        console.print(f"[bold]3 of 3[/]  the report is there already: {escape(str(report))}\n")
    else:
        console.print("[bold]3 of 3[/]  opening both networks\n")
        with working() as say:
            made = make(looked, say)
            made.write(report)
        for name, why in made.missing.items():
            console.print(f"{name} is left out: {why}")
    print(compare({subject.name: subject.audit for subject in looked}))
    ends = "; ".join(f"{s.name}: {s.run.accuracy:.1%} / ratio {number(s.mean_ratio)}" for s in reversed(looked))
    console.print(f"\n{ends}; report: {report}", style="bold", markup=False)


def _is_up_to_date(report: Path, out: Path) -> bool:
    written = [file.stat().st_mtime for name in NAMES for file in (out / name / "checkpoints").rglob("*")]
    return report.exists() and report.stat().st_mtime > max(written)


def _sweep(out: Path) -> None:
    """Only what a demo has written: looked at first, removed when all of it is known to be that."""
    for name in NAMES:
        folder = out / name
        if not folder.exists():
            continue
        parts = {"checkpoints", "environment.json", "history.jsonl", "lock", "recipe.json", "recipe.writing"}
        is_ours = {entry.name for entry in folder.iterdir()} <= parts
        if (folder / "recipe.json").exists():
            is_ours = is_ours and recipe_of(folder).name == name
        if not is_ours:
            raise ValueError(f"{folder} is not a run of the demo alone, so it is left as it is: choose another --out")
    report = out / "report.html"
    if report.exists() and b"Made by bort" not in report.read_bytes():
        raise ValueError(f"{report} is not a report of bort's, so it is left as it is: choose another --out")
    for name in NAMES:
        shutil.rmtree(out / name, ignore_errors=True)
    report.unlink(missing_ok=True)
    for figure in FIGURES:
        for ending in (".png", ".svg"):
            (out / "report-figures" / f"{figure}{ending}").unlink(missing_ok=True)


def main(out: Path, epochs: int | None, seed: int, *, fresh: bool) -> None:
    try:
        run(out, epochs, seed, fresh=fresh)
    except train.Interrupted:
        print("\nStopped; `bort demo` goes on from here.", file=sys.stderr)
        sys.exit(train.Interrupted.EXIT_CODE)
    except KeyboardInterrupt:
        print("\nStopped; what is trained is kept, and `bort demo` goes on from here.", file=sys.stderr)
        sys.exit(train.Interrupted.EXIT_CODE)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(f"bort demo: {error}")
