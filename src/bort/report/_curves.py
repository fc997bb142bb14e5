"""Curves: of trainings, and of deletion and insertion."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bort import explain
from bort.measure import curves, notes
from bort.pictures import colour, legend, panels, style
from bort.report._measured import Measured, Say
from bort.report._words import capital
from bort.subject import Missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
