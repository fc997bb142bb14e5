"""Curves: of trainings, and of deletion and insertion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bort import explain
from bort.measure import Evaluation
from bort.measure._deletion import Score
from bort.report._illustration import Illustration
from bort.pictures import MUTED, colour, legend, panels, style
from bort.report._subject import Missing, Say, Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES: dict[Score, str] = {"relative": "relative logit", "logit": "logit", "probability": "probability"}


def training(subjects: list[Subject]) -> Illustration:
    """Loss, accuracy and distance to the constraint, epoch by epoch."""
    if not any(subject.run.history for subject in subjects):
        raise Missing("no run has finished an epoch")
    from matplotlib.ticker import MaxNLocator

    shown = (("loss", "training loss", 1.0), ("accuracy", "% of the test images", 100.0), ("residual", "residual", 1.0))
    with style():
        figure, (cells,) = panels(1, 3, 270, 220)
        for cell, (key, title, factor) in zip(cells, shown, strict=True):
            for number, subject in enumerate(subjects):
                known = [(r["epoch"], factor * r[key]) for r in subject.run.history if r.get(key) is not None]
                if known:
                    epochs, values = zip(*known, strict=True)
                    marker = "o" if len(known) == 1 else None
                    cell.plot(epochs, values, color=colour(number), marker=marker, label=legend(subject.name))
            cell.set_title(title)
            cell.set_xlabel("epoch")
            cell.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        cells[0].set_ylim(bottom=0)
        cells[2].set_ylim(bottom=0)
        cells[0].legend()
    ends = [
        f"{s.name} ends at {s.run.history[-1]['accuracy']:.2%} and residual {s.run.history[-1]['residual']:.3f}"
        for s in subjects
        if s.run.history
    ]
    return Illustration(
        "training",
        "Training",
        "tab:mnist_cifar10",
        f"The residual is the largest distance of a layer to the constraint, 0 on it. {'; '.join(ends)}.",
        "Training loss, test accuracy and residual by epoch, a line a run",
        figure,
    )


def deletion(subjects: list[Subject], say: Say | None = None) -> Illustration:
    """The curves behind tab:insertion_deletion."""
    found = {subject.name: subject.evaluate(explain.names(), say) for subject in subjects}
    words = []
    for name, each in found.items():
        gains = {m: e.scores["relative"].means[1] - e.scores["relative"].means[0] for m, e in each.items()}
        known = {method: gain for method, gain in gains.items() if math.isfinite(gain)}
        if known:
            best = max(known, key=lambda method: known[method])
            words.append(f"for {name} insertion less deletion is largest with {best} ({known[best]:.2f})")
    return Illustration(
        "deletion",
        "Deletion and insertion",
        "tab:insertion_deletion",
        "The class's logit, relative to the clean image's, as the most salient pixels are taken away (solid: should fall "
        "early) or put into an empty image (dashed: should rise early). "
        f"{_capital('; '.join(words) or 'no area is a number')}.",
        "Deletion and insertion curves of each saliency method, a colour a run",
        curves(found),
    )


def curves(evaluations: Mapping[str, Mapping[str, Evaluation]], score: Score = "relative") -> Figure:
    """A panel a method; in it deletion (falls) and insertion (rises, dashed) of each run, the mean over all images."""
    methods = list(dict.fromkeys(method for each in evaluations.values() for method in each))
    columns = min(3, len(methods))
    with style():
        figure, axes = panels(math.ceil(len(methods) / columns), columns, 270, 210)
        cells = [cell for row in axes for cell in row]
        for cell, method in zip(cells, methods, strict=False):
            if cell is not cells[0]:
                cell.sharey(cells[0])  # before anything is drawn: later it would take the first one's limits
            for number, (run, found) in enumerate(evaluations.items()):
                if method not in found:
                    continue
                both = found[method].scores[score]
                steps = both.deletion_curves.shape[1] - 1
                part = [100 * step / steps for step in range(steps + 1)]
                deleted, inserted = (
                    c.double().mean(dim=0).tolist() for c in (both.deletion_curves, both.insertion_curves)
                )
                cell.plot(part, deleted, color=colour(number), label=legend(run))
                cell.plot(part, inserted, color=colour(number), linestyle=(0, (4, 2)))
            cell.set_title(method)
            cell.set_xlim(0, 100)
            cell.axhline(0, color=MUTED, linewidth=0.6)
        for cell in cells[len(methods) :]:
            cell.remove()
        for cell in (row[0] for row in axes):
            cell.set_ylabel(AXES[score])
        for cell in cells[max(0, len(methods) - columns) : len(methods)]:
            cell.set_xlabel("% of the pixels")
        handles, labels = cells[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=len(labels))
    return figure


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
