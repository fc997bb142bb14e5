"""Table 1 of the paper (tab:mnist_cifar10): accuracy of ACNN-Small and LeNet with SGD and Bort-S."""

from __future__ import annotations

from bort import train
from bort.reproduce._cells import (
    Pair,
    accuracy_cell,
    by_row,
    difference_cell,
    file_links,
    markdown,
    mean_accuracy,
    number_cell,
    paper_top1,
    residual_cell,
    text_and_table,
    verdict,
)
from bort.reproduce._measure import training
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Table


def experiments(quick: bool) -> list[Experiment]:
    """All eight cells; quick: the four recipes for the built-in digits."""
    recipes = map(train.recipes.get, train.recipes.names())
    if quick:
        rows = [recipe for recipe in recipes if recipe.data.name == "mnist5k"]
    else:
        rows = [recipe for recipe in recipes if recipe.paper is not None and recipe.paper.table == "1"]
    return [Experiment(recipe, training) for recipe in rows]


def section(results: list[Result]) -> str:
    rows = []
    for name, seeds in by_row(results).items():
        paper, ours = paper_top1(name), mean_accuracy(seeds)
        difference = "–" if paper is None or ours is None else f"{ours - paper:+.2f}"
        cells = number_cell(paper), accuracy_cell(seeds), difference, _status(seeds, ours, paper), residual_cell(seeds)
        rows.append((name, *cells, file_links(seeds)))
    header = ("row", "paper %", "ours %", "difference", "status", "residual", "files")
    text = _QUICK_TEXT if results[0].quick else _TEXT
    return text_and_table(text, header, rows)


def summary(results: list[Result]) -> str:
    """A line for each network and data set: the paper's SGD → Bort-S, and ours."""
    rows = by_row(results)
    lines, pairs = [], {}
    for name, bort in rows.items():
        sgd = rows.get(f"{name.removesuffix('-bort-s')}-sgd", [])
        if not name.endswith("-bort-s") or not sgd:
            continue
        papers = (number_cell(paper_top1(seeds[0].row)) for seeds in (sgd, bort))
        ours = (accuracy_cell(seeds) for seeds in (sgd, bort))
        pairs[name.removesuffix("-bort-s")] = Pair(sgd, bort)
        lines.append((name.removesuffix("-bort-s"), " → ".join(papers), " → ".join(ours), difference_cell(sgd, bort)))
    header = ("network", "paper %, SGD → Bort-S", "ours %, SGD → Bort-S", "paired difference")
    return verdict(pairs) + markdown(header, lines)


def _status(seeds: list[Result], ours: float | None, paper: float | None) -> str:
    if seeds[0].quick:
        return "quick, built-in digits"
    if ours is None:
        return "failed"
    if paper is None:
        return ""
    return "matches" if abs(ours - paper) <= 1 else ("above the paper" if ours > paper else "below the paper")


_QUICK_TEXT = "`bort reproduce table1 --quick`: the recipes of `bort recipes` on built-in digits. Not the paper's data."
_TEXT = (
    "`bort reproduce table1`. ACNN-Small and LeNet, 40 epochs, batch 256, lr 0.01, momentum 0.9, weight decay 0.01, λ 0.1, "
    "inputs normalised by channel. *matches*: within one point of the paper."
)

TABLE = Table("Table 1: accuracy on MNIST and CIFAR-10", experiments, section, summary, seeds=(0, 1, 2))
