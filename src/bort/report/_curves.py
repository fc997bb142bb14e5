"""Curves: of trainings, and of deletion and insertion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bort import explain
from bort.measure import Evaluation, Score, notes
from bort.pictures import MUTED, colour, legend, panels, style
from bort.report._measured import Measured, Say
from bort.report._words import capital
from bort.subject import Missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SCORE_NAMES: dict[Score, str] = {"relative": "relative logit", "logit": "logit", "probability": "probability"}


def training(subjects: list[Measured]) -> tuple[Figure, str]:
    """Loss, accuracy and distance to the constraint, epoch by epoch (tab:mnist_cifar10)."""
    trained = [measured.subject for measured in subjects if measured.subject.history]
    if not trained:
        raise Missing("there is no record of a finished epoch")
    from matplotlib.ticker import MaxNLocator

    shown = (("loss", "training loss", 1.0), ("accuracy", "% of the test images", 100.0), ("residual", "residual", 1.0))
    with style():
        figure, (cells,) = panels(1, 3, 270, 220)
        for cell, (key, title, factor) in zip(cells, shown, strict=True):
            for number, measured in enumerate(subjects):
                points = [(r["epoch"], factor * r[key]) for r in measured.subject.history if r.get(key) is not None]
                if points:
                    epochs, values = zip(*points, strict=True)
                    marker = "o" if len(points) == 1 else None
                    cell.plot(epochs, values, color=colour(number), marker=marker, label=legend(measured.name))
            cell.set_title(title)
            cell.set_xlabel("epoch")
            cell.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        cells[0].set_ylim(bottom=0)
        cells[2].set_ylim(bottom=0)
        cells[0].legend()
    ends = [
        f"{s.name} ends at {s.history[-1]['accuracy']:.2%} and residual {s.history[-1]['residual']:.3f}"
        for s in trained
        if s.history[-1].keys() >= {"accuracy", "residual"}
    ]
    look = "The residual is the largest distance of a layer to the constraint, 0 on it."
    return figure, f"{look} {'; '.join(ends)}." if ends else look


def deletion(subjects: list[Measured], say: Say | None = None) -> tuple[Figure, str]:
    """The curves behind tab:insertion_deletion."""
    evaluations = {subject.name: subject.evaluate(explain.names(), say) for subject in subjects}
    words = []
    for name, methods in evaluations.items():
        gains = {m: e.scores["relative"].means[1] - e.scores["relative"].means[0] for m, e in methods.items()}
        finite = {method: gain for method, gain in gains.items() if math.isfinite(gain)}
        if finite:
            best = max(finite, key=lambda method: finite[method])
            words.append(f"for {name} insertion less deletion is largest with {best} ({finite[best]:.2f})")
    look = (
        "The class's logit, relative to the clean image's, as the most salient pixels are taken away (solid: should fall "
        "early) or put into an empty image (dashed: should rise early). "
        f"{capital('; '.join(words) or 'no area is a number')}."
    )
    for name, methods in evaluations.items():
        look += "".join(f" {name}: {sentence}" for sentence in notes(methods))
    return curves(evaluations), look


def curves(evaluations: Mapping[str, Mapping[str, Evaluation]], score: Score = "relative") -> Figure:
    """Deletion (falls) and insertion (rises, dashed), the mean over the images that have a score: a panel a method, a colour
    a subject.

    Args:
        evaluations: by the subjects' names, what :func:`bort.measure.evaluate` returned for each.
        score: which of the three.
    """
    methods = list(dict.fromkeys(method for one in evaluations.values() for method in one))
    if not methods:
        raise ValueError("no method was evaluated: there are no curves to draw")
    columns = min(3, len(methods))
    with style():
        figure, axes = panels(math.ceil(len(methods) / columns), columns, 270, 210)
        cells = [cell for row in axes for cell in row]
        for cell, method in zip(cells, methods, strict=False):
            if cell is not cells[0]:
                cell.sharey(cells[0])  # before anything is drawn: later it would take the first one's limits
            for number, (name, one) in enumerate(evaluations.items()):
                if method in one:
                    _plot(cell, one[method], score, name, number)
            cell.set_title(method)
            cell.set_xlim(0, 100)
            cell.axhline(0, color=MUTED, linewidth=0.6)
        for cell in cells[len(methods) :]:
            cell.remove()
        for cell in (row[0] for row in axes):
            cell.set_ylabel(_SCORE_NAMES[score])
        for cell in cells[max(0, len(methods) - columns) : len(methods)]:
            cell.set_xlabel("% of the pixels")
        handles, labels = cells[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=len(labels))
    return figure


def _plot(cell: Axes, evaluation: Evaluation, score: Score, name: str, number: int) -> None:
    both = evaluation.scores[score]
    steps = both.deletion_curves.shape[1] - 1
    percent = [100 * step / steps for step in range(steps + 1)]
    has_curve = ~both.deletion.isnan()
    deleted, inserted = (
        curves[has_curve].double().mean(dim=0).tolist() for curves in (both.deletion_curves, both.insertion_curves)
    )
    cell.plot(percent, deleted, color=colour(number), label=legend(name))
    cell.plot(percent, inserted, color=colour(number), linestyle=(0, (4, 2)))
