"""Table 2 of the paper (tab:imagenet) in small: its 14 rows on 100 classes of Tiny ImageNet at 64 px. Not ImageNet."""

from __future__ import annotations

from bort import train
from bort.reproduce._cells import accuracy_cell, by_row, file_links, mean_cell, number_cell, table_section
from bort.reproduce._measure import training
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Table
from bort.train import Recipe


def full_size() -> dict[str, Recipe]:
    """The paper's 14 rows, by the name of the recipe that is run instead."""
    recipes = map(train.recipes.get, train.recipes.names())
    return {f"tiny-{recipe.name}": recipe for recipe in recipes if recipe.paper and recipe.paper.table == "2"}


def experiments(quick: bool) -> list[Experiment]:
    if quick:
        raise ValueError("table2 has no quick form: its networks need the images of a folder, and none are embedded")
    return [Experiment(train.recipes.get(name), training) for name in full_size()]


def section(results: list[Result]) -> str:
    rows = []
    of_paper = full_size()
    for name, seeds in by_row(results).items():
        full = of_paper.get(name)
        top5 = [100 * result.metrics["top5"] for result in seeds if not result.failed]
        paper = number_cell(full.paper.top1 if full and full.paper else None)
        command = f"`bort train {full.name}`" if full else "–"
        rows.append((name, accuracy_cell(seeds), mean_cell(top5), paper, command, file_links(seeds)))
    text = (
        "`bort reproduce table2`. **Not ImageNet**: 100 classes of Tiny ImageNet at 64 px, the recipes' own augmentation, "
        f"schedule and rates; epochs cut to {results[0].recipe.epochs}, warm-up to 1 and batches to a quarter, for "
        "baseline and Bort alike: too short to judge Bort by. The paper's figures are of ImageNet at 224 px after 300 epochs "
        "and stand beside for the order only; the last command is the full-size row."
    )
    header = ("row", "top-1 % here", "top-5 % here", "paper, ImageNet %", "full size", "files")
    return table_section("Table 2 in small", text, header, rows)


TABLE = Table(experiments, section, seeds=(0, 1))
