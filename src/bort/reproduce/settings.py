"""Rows of Table 1 with settings other than the paper's, beside the unchanged rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from bort import train
from bort.reproduce._cells import accuracy_cell, by_row, file_links, markdown, residual_cell, text_and_table
from bort.reproduce._measure import training
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Table
from bort.train import Recipe

_CHANGES: Final[tuple[tuple[str, str, dict[str, Any], str], ...]] = (
    ("bort-s", "lambda-0.01", {"constraint": 0.01, "weight_decay": 0.001}, "λ 0.01, weight decay 0.001"),
    ("bort-s", "no-decay", {"weight_decay": 0.0}, "no weight decay"),
    ("bort-s", "every-4", {"every": 4}, "the penalty at each fourth step"),
    # Controls: SGD with the weight decay, or the schedule, of a changed Bort-S.
    ("sgd", "decay-0.001", {"weight_decay": 0.001}, "weight decay 0.001"),
    ("sgd", "no-decay", {"weight_decay": 0.0}, "no weight decay"),
    ("sgd", "cosine", {"schedule": "cosine"}, "a cosine rate"),
    ("bort-s", "cosine", {"schedule": "cosine"}, "a cosine rate"),
)
"""Optimizer of the row that is changed, name of the change, fields of the recipe's ``optim``, note."""


def experiments(quick: bool) -> list[Experiment]:
    rows = ("mnist5k-lenet",) if quick else ("cifar10-lenet", "cifar10-acnn-small", "mnist-acnn-small")
    changed = []
    for row in rows:
        for optimizer, name, fields, note in _CHANGES:
            base = train.recipes.get(f"{row}-{optimizer}")
            optim = replace(base.optim, **fields)
            recipe = replace(base, name=f"{base.name}-{name}", optim=optim, paper=None)
            changed.append(Experiment(recipe, training, note))
    return changed


def section(results: list[Result]) -> str:
    """With the results of Table 1 too."""
    table1 = [result for result in results if result.table == "table1"]
    rows = []
    for name, seeds in by_row(result for result in results if result.table == "settings").items():
        unchanged = [result for result in table1 if _is_base(result.recipe, seeds[0].recipe)]
        before = accuracy_cell(unchanged) if unchanged else "–"
        rows.append((name, seeds[0].note, before, accuracy_cell(seeds), residual_cell(seeds), file_links(seeds)))
    text = "`bort reproduce settings`. Rows of Table 1 with one thing changed; with λ 0.01 weight decay too (0.001)."
    header = ("row", "changed", "as in Table 1 %", "changed so %", "residual", "files")
    return text_and_table(text, header, rows)


def summary(results: list[Result]) -> str:
    """A line for each row of Table 1, a column for each change."""
    table1 = [result for result in results if result.table == "table1"]
    lines: dict[str, dict[str, str]] = {}
    for seeds in by_row(result for result in results if result.table == "settings").values():
        unchanged = [result for result in table1 if _is_base(result.recipe, seeds[0].recipe)]
        name = f"{seeds[0].recipe.data.name}, {seeds[0].recipe.net.name}, {seeds[0].recipe.optim.name}"
        cells = lines.setdefault(name, {"as in Table 1": accuracy_cell(unchanged) if unchanged else "–"})
        cells[seeds[0].note] = accuracy_cell(seeds)
    notes = list(dict.fromkeys(note for cells in lines.values() for note in cells))
    return markdown(("", *notes), ((name, *(cells.get(note, "–") for note in notes)) for name, cells in lines.items()))


def _is_base(base: Recipe, changed: Recipe) -> bool:
    """Whether this is the row of Table 1 that was changed: Table 1 has each network on each data set with each optimizer
    once."""
    return (base.net, base.data, base.optim.name) == (changed.net, changed.data, changed.optim.name)


TABLE = Table("Other settings", experiments, section, summary, seeds=(0, 1, 2), also_reads=("table1",))
