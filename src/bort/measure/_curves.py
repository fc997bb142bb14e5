"""Deletion and insertion curves as figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bort import _html, explain
from bort.pictures import MUTED, colour, key, legend, panels, style, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bort.measure._deletion import DeletionInsertion
    from bort.measure._evaluate import Evaluation
    from bort.measure._scores import Score

_SCORE_NAMES: dict[object, str] = {"relative": "relative logit", "logit": "logit", "probability": "probability"}
_PANEL = 270, 210


def curves(
    evaluations: Mapping[str, Mapping[str, Evaluation]],
    score: Score = "relative",
    *,
    columns: int = 3,
    width: float = 810,
) -> Figure:
    """Deletion (falls) and insertion (rises, dashed), the mean over the images that have a score: a panel a method, a colour
    a subject.

    Args:
        evaluations: by the subjects' names, what :func:`bort.measure.evaluate` returned for each. An empty name is not in the
            legend.
        score: which of the three.
        columns, width: panels beside each other, and pixels of all of them.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> figure = measure.curves({"LeNet": measure.evaluate(model, x, ["cam"], warn=False)}, score="probability")
        >>> pictures.to_png(figure)[:4]
        b'\x89PNG'
    """
    methods = list(dict.fromkeys(method for one in evaluations.values() for method in one))
    if not methods:
        raise ValueError("no method was evaluated: there are no curves to draw")
    across = min(columns, len(methods))
    with style():
        figure, axes = panels(math.ceil(len(methods) / across), across, width / columns, _PANEL[1])
        cells = [cell for row in axes for cell in row]
        for cell, method in zip(cells, methods, strict=False):
            if cell is not cells[0]:
                cell.sharey(cells[0])  # before anything is drawn: later it would take the first one's limits
            for number, (name, one) in enumerate(evaluations.items()):
                if method in one:
                    _plot(cell, one[method].scores[score], name, number)
            cell.set_title(explain.get(method).label if method in explain.names() else method)
        for cell in cells[len(methods) :]:
            cell.remove()
        for cell in (row[0] for row in axes):
            cell.set_ylabel(_score_name(score))
        for cell in cells[max(0, len(methods) - across) : len(methods)]:
            cell.set_xlabel("% of the pixels")
        key(figure, cells[0])
    return figure


def result_in_notebook(result: DeletionInsertion) -> str:
    """The curves of one result, by whatever score it has, and its mean areas in words."""
    name, counted, total = _score_name(result.score), result.counted, len(result.deletion)
    if not counted:
        return _html.notebook(_html.paragraphs([f"None of the {total} images has an area by the {name}."]))
    with style():
        figure, ((cell,),) = panels(1, 1, *_PANEL)
        _plot(cell, result, "", 0)
        cell.set_ylabel(name)
        cell.set_xlabel("% of the pixels")
    deletion, insertion = result.means
    words = (
        f"Mean areas by the {name}, {counted} of {total} images: deletion {deletion:.3f} (smaller is better), insertion "
        f"{insertion:.3f} (larger is better)."
    )
    return _html.notebook(image_with_words(figure, f"{counted} images"), _html.paragraphs([words]))


def image_with_words(figure: Figure, of: str) -> str:
    """A figure of curves as HTML, with how to read it."""
    svg = to_svg(
        figure, transparent=False
    ).encode()  # a dark theme shows through a transparent one, and its ink is dark
    words = "Solid: deletion, which should fall early. Dashed: insertion, which should rise early."
    return _html.image(svg, "svg+xml", f"Deletion and insertion curves of {of}") + _html.paragraphs([words])


def _score_name(score: object) -> str:
    """Of one of the three scores, or of a function of the user's own."""
    return _SCORE_NAMES.get(score) or str(getattr(score, "__name__", type(score).__name__))


def _plot(cell: Axes, result: DeletionInsertion, name: str, number: int) -> None:
    steps = result.deletion_curves.shape[1] - 1
    percent = [100 * step / steps for step in range(steps + 1)]
    has_curve = ~result.deletion.isnan()
    deleted, inserted = (
        curves[has_curve].double().mean(dim=0).tolist() for curves in (result.deletion_curves, result.insertion_curves)
    )
    cell.plot(percent, deleted, color=colour(number), label=legend(name))
    cell.plot(percent, inserted, color=colour(number), linestyle=(0, (4, 2)))
    cell.set_xlim(0, 100)
    cell.axhline(0, color=MUTED, linewidth=0.6)
