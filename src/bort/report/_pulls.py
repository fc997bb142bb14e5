"""What a pull gains and costs, where several networks were trained with different ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Final

from bort.pictures import colour, panels, style
from bort.report._areas import gaps
from bort.report._illustration import WIDTH, Drawn
from bort.report._measured import Measured, Say, shared_methods
from bort.report._words import plural, tested_on
from bort.subject import Missing

FEWEST_PULLS: Final = 3
"""Pulls that make a curve."""


def pulls(subjects: list[Measured], say: Say | None = None) -> Drawn:
    """Accuracy, distance to the constraint, explanations and reconstructions over the pull (as fig:ablation_cifar10 has
    accuracy over λ): a mark a run, a line through the means."""
    trained = [measured for measured in subjects if _last(measured).keys() >= {"pull", "residual", "accuracy"}]
    at = sorted({_last(measured)["pull"] for measured in trained})
    if len(at) < FEWEST_PULLS:
        raise Missing(
            f"it takes {FEWEST_PULLS} different pulls or more, such as 0, 1.5 and 5 (optim.pull); here are {len(at)}"
        )
    methods = shared_methods(trained)
    for measured in trained:
        measured.evaluate(methods, say)
    images = tested_on(measured.subject for measured in trained)
    shown: dict[str, tuple[Callable[[Measured], float], float]] = {
        f"% of the {images}": (lambda measured: 100 * _last(measured)["accuracy"], 5.0),
        "residual": (lambda measured: _last(measured)["residual"], 0.1),
        "insertion less deletion": (lambda measured: gaps(measured, methods).nanmean().item(), 0.1),
        "reconstruction": (lambda measured: measured.reconstructions().correlations.mean().item(), 0.1),
    }
    """By title; and what an axis shows at the least, so that noise does not look like a slope."""
    with style():
        figure, axes = panels(2, 2, WIDTH / 2, 180)
        for cell, (title, (value, span)) in zip((cell for row in axes for cell in row), shown.items(), strict=True):
            values = [(_last(measured)["pull"], value(measured)) for measured in trained]
            # A place for each pull, since the usual ones, 0 among them, fit neither a linear nor a logarithmic axis.
            cell.plot([at.index(pull) for pull, _ in values], [value for _, value in values], "o", color=colour(0))
            means = [statistics.mean(value for pull, value in values if pull == each) for each in at]
            cell.plot(range(len(at)), means, color=colour(0))
            cell.set_xticks(range(len(at)), [f"{pull:.3g}" for pull in at])
            low, high = cell.get_ylim()
            missing = max(0.0, span - (high - low)) / 2
            cell.set_ylim(low - missing, high + missing)
            cell.set_title(title)
            cell.set_xlabel("pull")
    most_accurate = max(trained, key=lambda measured: _last(measured)["accuracy"])
    look = (
        f"Runs with {plural(len(at), 'different pull')}, a mark each; the pull is λ · Σ lr / (1 − momentum), 0 without Bort. "
        f"Insertion less deletion is the mean over {plural(len(methods), 'method')}; reconstruction: the correlation of the "
        f"image with what is traced back from the top layer. The most accurate is {most_accurate.name}, with a pull of "
        f"{_last(most_accurate)['pull']:.3g}. Runs that differ in more than the pull are not comparable."
    )
    return Drawn(figure, look)


def _last(measured: Measured) -> dict[str, float]:
    """The last record of its history; empty if it has none."""
    return measured.subject.history[-1] if measured.subject.history else {}
