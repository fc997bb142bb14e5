"""Cells, rows and tables of the pages of results in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bort import _intervals, train
from bort._intervals import Interval
from bort.reproduce._result import Result


def by_row(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The seeds of each row; rows in the order of the recipes, then by name."""
    rows: dict[str, list[Result]] = {}
    for result in results:
        rows.setdefault(result.row, []).append(result)
    order = {name: number for number, name in enumerate(train.recipes.names())}
    return dict(sorted(rows.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))


def mean_accuracy(seeds: Iterable[Result]) -> float | None:
    """In per cent, over those that did not fail; None if all did."""
    values = _accuracies(seeds)
    return statistics.mean(values) if values else None


def accuracy_cell(seeds: Sequence[Result]) -> str:
    values = _accuracies(seeds)
    return mean_cell(values, failed=len(seeds) - len(values))


def _accuracies(seeds: Iterable[Result]) -> list[float]:
    return [100 * result.metrics["accuracy"] for result in seeds if not result.failed]


def values_of(seeds: Iterable[Result], *path: str) -> list[float]:
    """A metric of those results that have it, by the keys that lead to it; the mean of one that is a mean and its error."""
    values = []
    for result in seeds:
        value: Any = result.metrics
        for key in path:
            value = value.get(key, {})
        value = value[0] if isinstance(value, list) else value
        if isinstance(value, (int, float)):
            values.append(float(value))
    return values


def mean_cell(values: Sequence[float], failed: int = 0, digits: int = 2) -> str:
    """Mean, standard deviation and number, such as "98.50 ± 0.71 (n = 2)"."""
    failures = f", {failed} failed" if failed else ""
    if not values:
        return f"– (n = 0{failures})"
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread} (n = {len(values)}{failures})"


def residual_cell(seeds: Iterable[Result]) -> str:
    residuals = [result.metrics["residual"] for result in seeds if not result.failed]
    return f"{statistics.mean(residuals):.3f}" if residuals else "–"


def number_cell(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def file_links(results: Sequence[Result]) -> str:
    """Links to the result files, named by their seeds; from seven files on numbered 1, 2, …"""
    return " ".join(f"[{r.seed if len(results) < 7 else n}]({r.file})" for n, r in enumerate(results, 1))


def failures(results: Iterable[Result]) -> str:
    """A list of those that failed, for tables without a cell for it."""
    lines = [f"- {r.row}, seed {r.seed}: failed, {r.failed}\n" for r in results if r.failed]
    return "".join(lines) + "\n" if lines else ""


def paper_top1(recipe_name: str) -> float | None:
    """What the paper reports for a recipe; None if it has no such row."""
    if recipe_name not in train.recipes.names():
        return None
    paper = train.recipes.get(recipe_name).paper
    return paper.top1 if paper else None


def difference_cell(before: Sequence[Result], after: Sequence[Result], *, best_of: int = 1) -> str:
    """Of two rows in accuracy, paired by seed, such as "+3.20 [+1.10, +5.30] (n = 3)"; see `interval`."""
    return interval(_differences(before, after), best_of=best_of)


def _differences(before: Sequence[Result], after: Sequence[Result]) -> list[float]:
    first, second = ({r.seed: 100 * r.metrics["accuracy"] for r in seeds if not r.failed} for seeds in (before, after))
    return [second[seed] - first[seed] for seed in sorted(first.keys() & second.keys())]


@dataclass(frozen=True)
class Pair:
    """A row without Bort and one with it, to be compared."""

    before: Sequence[Result]
    after: Sequence[Result]
    best_of: int = 1
    """From how many rows the second one was chosen, for its accuracy."""


def verdict(pairs: Mapping[str, Pair]) -> str:
    """In words: where the interval of `difference_cell` is above 0, where below, and where it says neither."""
    said: dict[str, list[str]] = {"higher": [], "lower": [], "not decided": [], "one seed only": []}
    for name, pair in pairs.items():
        differences = _differences(pair.before, pair.after)
        if not differences:
            continue
        limits = _interval(differences, pair.best_of)
        if len(differences) == 1:
            said["one seed only"].append(f"{name} ({differences[0]:+.1f} points)")
        elif limits is None or limits.low <= 0 <= limits.high:
            said["not decided"].append(name)
        else:
            said["higher" if limits.low > 0 else "lower"].append(name)
    lines = [f"- {where}: {'; '.join(names)}\n" for where, names in said.items() if names]
    return f"Accuracy with Bort is\n\n{''.join(lines)}\n" if lines else ""


def interval(differences: Sequence[float], digits: int = 2, *, best_of: int = 1) -> str:
    """Mean, 95% interval by Student's t, and number; "–" of none."""
    if not differences:
        return "–"
    mean, n = statistics.mean(differences), len(differences)
    limits = _interval(differences, best_of)
    between = "" if limits is None else f" [{limits.low:+.{digits}f}, {limits.high:+.{digits}f}]"
    return f"{mean:+.{digits}f}{between} (n = {n})"


def _interval(differences: Sequence[float], best_of: int) -> Interval | None:
    """None of a single difference, and of equal ones: accuracies count images, so a few may agree by chance."""
    equal = max(differences) - min(differences) < 1e-9
    return None if equal else _intervals.mean(torch.tensor(differences, dtype=torch.float64), best_of=best_of)


def text_and_table(text: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"{text}\n\n{markdown(header, rows)}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
