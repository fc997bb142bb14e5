"""How figures look: few lines, direct labels, colours that everybody can tell apart, on light and on dark paper."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#24292f", "#6b7280", "#d5dae0"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07800", "#3a8fc4")  # Okabe and Ito's, the last two darker
INCH = 96.0

_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "text.parse_math": False,  # names are names, whatever dollars are in them
    "svg.fonttype": "none",  # text stays text: it can be found, and it follows the page's colours
    "svg.hashsalt": "bort",  # the same figure is the same file
}


@contextmanager
def style() -> Iterator[None]:
    try:
        import matplotlib
    except ImportError:
        raise ImportError('figures need matplotlib: pip install "bort[explain]"') from None
    with matplotlib.rc_context(_SETTINGS):
        yield


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    """A figure of so many panels, each so many pixels large. Inside `style`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * width / INCH, rows * height / INCH), dpi=INCH, layout="constrained")
    found = figure.subplots(rows, columns, squeeze=False)
    return figure, [list(row) for row in found]


def legend(name: str) -> str:
    """A name for a legend: matplotlib leaves out those that begin with an underscore."""
    return f"\u200b{name}" if name.startswith("_") else name


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def to_svg(figure: Figure) -> str:
    """On no background, without the declarations that a file of its own has."""
    buffer = io.StringIO()
    with style():
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def to_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=2 * INCH, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
