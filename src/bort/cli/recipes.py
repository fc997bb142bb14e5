"""`bort recipes` and `bort show`"""

from __future__ import annotations

import json

from bort.cli._errors import exit_on_error


def recipes() -> None:
    """List the recipes: one for each row of the paper's Tables 1 and 2, with what the paper reports, and small ones."""
    from bort._table import table
    from bort.train import recipes

    rows = []
    for recipe in map(recipes.get, recipes.names()):
        optim, paper = recipe.optim, recipe.paper
        accuracies = "" if paper is None else f"{paper.top1:.2f}" + (f" / {paper.top5:.2f}" if paper.top5 else "")
        settings = (
            f"{optim.lr:g}",
            f"{optim.weight_decay:g}",
            f"{optim.constraint:g}" if optim.constraint else f"pull {optim.pull:g}" if optim.pull else "",
        )
        table_number = "" if paper is None else paper.table
        rows.append((recipe.name, table_number, str(recipe.epochs), str(recipe.batch), *settings, accuracies))
    header = ("recipe", "table", "epochs", "batch", "lr", "weight decay", "λ", "paper, %")
    print(table(header, rows, right=range(1, len(header))))


def show(name: str) -> None:
    """Print one recipe with every setting, as JSON.

    Args:
        name: as `bort recipes` lists it.
    """
    with exit_on_error("show"):
        from bort.train import recipes

        recipe = recipes.get(name)
    print(json.dumps(recipe.to_dict(), indent=2, ensure_ascii=False))
