"""Curves: of trainings, and of deletion and insertion."""

from __future__ import annotations

import math

from bort import explain
from bort.measure import curves, notes
from bort.pictures import colour, key, legend, panels, style
from bort.report import _marks
from bort.report._illustration import WIDTH, Drawn
from bort.report._measured import Measured, Say, shared_methods
from bort.report._words import capital, plural, tested_on
from bort.subject import Missing

_FIELDS = (
    ("loss", "training loss", 1.0),
    ("test_loss", "test loss", 1.0),
    ("accuracy", "% of the {tested_on}", 100.0),
    ("residual", "residual", 1.0),
)
"""Of a record of an epoch: the field, its title, and the factor that it is shown with."""


def training(subjects: list[Measured]) -> Drawn:
    """Losses, accuracy and distance to the constraint, epoch by epoch (tab:mnist_cifar10)."""
    trained = [measured.subject for measured in subjects if measured.subject.history]
    if not trained:
        raise Missing("there is no record of a finished epoch")
    from matplotlib.ticker import MaxNLocator

    with style():
        figure, axes = panels(2, 2, WIDTH / 2, 180)
        cells = [cell for row in axes for cell in row]
        for cell, (field, title, factor) in zip(cells, _FIELDS, strict=True):
            for number, measured in enumerate(subjects):
                points = [(r["epoch"], factor * r[field]) for r in measured.subject.history if r.get(field) is not None]
                if points:
                    epochs, values = zip(*points, strict=True)
                    marker = "o" if len(points) == 1 else None
                    cell.plot(epochs, values, color=colour(number), marker=marker, label=legend(measured.name))
            cell.set_title(title.format(tested_on=tested_on(trained)))
            cell.set_xlabel("epoch")
            cell.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            if field != "accuracy":
                cell.set_ylim(bottom=0)
        key(figure, cells[0])
    ends = [
        f"{s.name} ends after {plural(len(s.history), 'epoch')} at {s.history[-1]['accuracy']:.2%} of all {tested_on([s])} "
        f"and residual {s.history[-1]['residual']:.3f}{_after_pull(s.history[-1].get('pull'))}"
        for s in trained
        if s.history[-1].keys() >= {"accuracy", "residual"}
    ]
    look = "The residual is the largest distance of a layer to the constraint, 0 on it."
    return Drawn(figure, f"{look} {'; '.join(ends)}." if ends else look)


def _after_pull(pull: float | None) -> str:
    """Of λ over the whole training; runs of version 0.1.0 do not have it."""
    return f", after a pull of {pull:.3g}" if pull else ""


def deletion(subjects: list[Measured], say: Say | None = None) -> Drawn:
    """The curves behind tab:insertion_deletion."""
    methods = shared_methods(subjects)
    evaluations = {subject.name: subject.evaluate(methods, say) for subject in subjects}
    words = []
    for name, own in evaluations.items():
        gains = {m: e.scores["relative"].means[1] - e.scores["relative"].means[0] for m, e in own.items()}
        finite = {method: gain for method, gain in gains.items() if math.isfinite(gain)}
        if finite:
            best = max(finite, key=lambda method: finite[method])
            words.append(
                f"for {name} insertion less deletion is largest with {explain.get(best).label} ({finite[best]:.2f})"
            )
    first = subjects[0]
    count = len(first.images(first.sizes.evaluated))
    look = (
        "The class's logit, relative to the clean image's, as the most salient pixels are taken away (solid: should fall "
        f"early) or put into an empty image (dashed: should rise early). Mean over {plural(count, 'test image')}. "
        f"{capital('; '.join(words) or 'no area is a number')}."
    )
    for name, own in evaluations.items():
        look += "".join(f" {name}: {sentence}" for sentence in notes(own))
    addresses = _marks.addresses(first, range(min(count, first.sizes.shown)), "view=evidence")
    return Drawn(curves(evaluations, columns=2, width=WIDTH), look, addresses)
