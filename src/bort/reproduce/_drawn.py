"""Figures 1 to 3 of the paper, drawn from a pair of runs into a folder beside the result that names them."""

from __future__ import annotations

from functools import partial
from typing import Any

from bort._sample_sizes import SampleSizes
from bort._files import write_atomically
from bort.reproduce._trained import Trained

FIGURES = ("gram", "sigma", "ratio", "reconstruction", "saliency", "features", "clusters", "adversaries")
"""Of `bort figures`: those of the paper that are not in a table or a curve already."""


def _pictures(trained: Trained, *, amount: SampleSizes) -> dict[str, Any]:
    """Draws all of them; the metrics are what each one says."""
    from bort.report import Subject, draw
    from bort.pictures import to_png

    assert trained.against is not None
    subjects = [
        Subject(run.recipe.optim.name, run, amount, trained.device, trained.data_root)
        for run in (trained.against, trained.run)
    ]
    trained.pictures.mkdir(parents=True, exist_ok=True)
    found = []
    for name in FIGURES:
        each = draw(name, subjects)
        write_atomically(trained.pictures / f"{name}.png", to_png(each.figure))
        found.append({"name": name, "title": each.title, "paper": each.paper, "look": each.look, "alt": each.alt})
    return {"pictures": found}


pictures = partial(_pictures, amount=SampleSizes(shown=8, measured=1000, evaluated=8, pairs=1000))
pictures_quick = partial(_pictures, amount=SampleSizes(shown=4, measured=20, evaluated=4, masks=50, pairs=20))
