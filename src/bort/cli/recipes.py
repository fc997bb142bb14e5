"""`bort recipes` and `bort show`"""

from __future__ import annotations

import json
import sys


def recipes() -> None:
    """List the recipes: one for each row of the paper's Tables 1 and 2, with what the paper reports, and small ones."""
    from bort._table import table
    from bort.train.recipes import get, names

    rows = []
    for recipe in map(get, names()):
        optim, paper = recipe.optim, recipe.paper
        figures = "" if paper is None else f"{paper.top1:.2f}" + (f" / {paper.top5:.2f}" if paper.top5 else "")
        settings = (f"{optim.lr:g}", f"{optim.weight_decay:g}", f"{optim.constraint:g}" if optim.constraint else "")
        table_number = "" if paper is None else paper.table
        rows.append((recipe.name, table_number, str(recipe.epochs), str(recipe.batch), *settings, figures))
    header = ("recipe", "table", "epochs", "batch", "lr", "weight decay", "λ", "paper, %")
    print(table(header, rows, right=range(1, len(header))))


def show(name: str) -> None:
    """Print one recipe with every setting, as JSON.

    Args:
        name: as `bort recipes` lists it.
    """
    from bort.train.recipes import get

    try:
        recipe = get(name)
    except ValueError as error:
        sys.exit(str(error))
    print(json.dumps(recipe.to_dict(), indent=2, ensure_ascii=False))
