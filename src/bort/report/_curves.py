"""Curves: of trainings, and of deletion and insertion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bort.measure import Evaluation
from bort.measure._deletion import Score
from bort.report._style import MUTED, colour, panels, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES: dict[Score, str] = {
    "relative": "relative logit",
    "logit": "logit",
    "probability": "probability",
}


def deletion_insertion_curves(evaluations: Mapping[str, Mapping[str, Evaluation]], score: Score = "relative") -> Figure:
    """A panel a method; in it deletion (falls) and insertion (rises, dashed) of each run, the mean over all images."""
    methods = list(dict.fromkeys(method for each in evaluations.values() for method in each))
    columns = min(3, len(methods))
    with style():
        figure, axes = panels(math.ceil(len(methods) / columns), columns, 270, 210)
        cells = [cell for row in axes for cell in row]
        for cell, method in zip(cells, methods, strict=False):
            for number, (run, found) in enumerate(evaluations.items()):
                if method not in found:
                    continue
                curves = found[method].scores[score]
                steps = curves.deletion_curves.shape[1] - 1
                part = [100 * step / steps for step in range(steps + 1)]
                deleted, inserted = (
                    c.double().mean(dim=0).tolist() for c in (curves.deletion_curves, curves.insertion_curves)
                )
                cell.plot(part, deleted, color=colour(number), label=run)
                cell.plot(part, inserted, color=colour(number), linestyle=(0, (4, 2)))
            cell.set_title(method)
            cell.set_xlim(0, 100)
            cell.axhline(0, color=MUTED, linewidth=0.6)
            cell.sharey(cells[0])
        for cell in cells[len(methods) :]:
            cell.remove()
        for cell in (row[0] for row in axes):
            cell.set_ylabel(AXES[score])
        for cell in cells[max(0, len(methods) - columns) : len(methods)]:
            cell.set_xlabel("% of the pixels")
        handles, labels = cells[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=len(labels))
    return figure
