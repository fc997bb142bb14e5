"""How figures look: few lines, direct labels, colours that everybody can tell apart, on light and on dark paper."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bort.pictures._pixels import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = tuple[str, list[tuple[Picture, str]]]
"""The name at the left of a row, and its pictures with the words under each."""

INK, MUTED, GRID = "#24292f", "#6b7280", "#d5dae0"
"""Colours of text, of labels and of grid lines. The report's page replaces them by its own, for dark paper."""
GOOD, BAD = "#1a7f37", "#b3261e"
"""Colours of what is right and of mistakes, replaced in the same way. A sign says it too: not everybody sees the colours."""

_PIXELS_PER_INCH = 96.0

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
    "text.parse_math": False,  # a run may have dollars in its name
    "svg.fonttype": "none",  # text stays text: it can be found, and it follows the page's colours
    "svg.hashsalt": "bort",  # the same figure is the same file
}


@contextmanager
def style() -> Iterator[None]:
    """Inside, matplotlib draws in this package's style; afterwards its settings are what they were.

    Example:
        >>> import matplotlib
        >>> before = matplotlib.rcParams["text.color"]
        >>> with pictures.style():
        ...     matplotlib.rcParams["text.color"] == pictures.INK
        True
        >>> matplotlib.rcParams["text.color"] == before
        True
    """
    try:
        import matplotlib
    except ImportError:
        raise ImportError('figures need matplotlib: pip install "bort[explain]"') from None
    with matplotlib.rc_context(_SETTINGS):
        yield


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows × columns panels, each width × height pixels. To be called inside :func:`style`.

    Example:
        >>> with pictures.style():
        ...     figure, axes = pictures.panels(1, 2, width=200, height=100)
        >>> len(axes), len(axes[0])
        (1, 2)
    """
    from matplotlib.figure import Figure

    inches = (columns * width / _PIXELS_PER_INCH, rows * height / _PIXELS_PER_INCH)
    figure = Figure(figsize=inches, dpi=_PIXELS_PER_INCH, layout="constrained")
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False)]


def sheet(rows: list[Row], side: int = 92) -> Figure:
    """Rows of pictures, named at their left.

    Example:
        >>> one = pictures.picture(torch.rand(1, 8, 8))
        >>> figure = pictures.sheet([("image", [(one, "cat"), (one, "dog")])])
        >>> pictures.to_svg(figure).startswith("<svg")
        True
    """
    columns = max(len(pictures) for _, pictures in rows)
    with style():
        has_words = any(words for _, pictures in rows for _, words in pictures)
        names = 6 * max(
            len(name) for name, _ in rows
        )  # pixels; without room of their own they would press on the pictures
        figure, axes = panels(len(rows), columns, side + names / columns, side + (16 if has_words else 0))
        layout: Any = figure.get_layout_engine()
        layout.set(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
        for cells, (name, pictures) in zip(axes, rows, strict=True):
            for cell, (image, words) in zip(cells, pictures, strict=False):
                cell.imshow(image, interpolation="none")
                cell.set_xlabel(words, fontsize=7.5, labelpad=2, color=MUTED)
            for cell in cells:
                cell.set_xticks([])
                cell.set_yticks([])
                cell.grid(visible=False)
                cell.spines[:].set_visible(False)
            cells[0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=6, fontsize=8.5)
            for cell in cells[len(pictures) :]:
                cell.set_visible(False)
    return figure


def legend(name: str) -> str:
    """A name for a legend. matplotlib leaves out names that begin with an underscore, so they get a space of no width.

    Example:
        >>> pictures.legend("Bort-S"), pictures.legend("_mine").endswith("_mine")
        ('Bort-S', True)
    """
    return f"\u200b{name}" if name.startswith("_") else name


def key(figure: Figure, cell: Axes) -> None:
    """The legend of what is drawn in a panel: above all panels, in as many columns as its names leave room for.

    Example:
        >>> with pictures.style():
        ...     figure, ((cell,),) = pictures.panels(1, 1, width=200, height=100)
        ...     _ = cell.plot([1, 2], label="loss")
        ...     pictures.key(figure, cell)
        >>> len(figure.legends)
        1
    """
    handles, labels = cell.get_legend_handles_labels()
    if handles:
        widest = 50 + 7 * max(len(label) for label in labels)  # pixels of a line, a gap and a name
        columns = int(figure.get_figwidth() * _PIXELS_PER_INCH / widest)
        figure.legend(
            handles, labels, loc="outside upper left", ncols=max(1, min(len(labels), columns)), handlelength=3
        )


def to_svg(figure: Figure, *, transparent: bool = True) -> str:
    """The <svg> element alone, without the declarations that a file needs. Its background is transparent, or white.

    Example:
        >>> with pictures.style():
        ...     figure, _ = pictures.panels(1, 1, width=100, height=50)
        >>> pictures.to_svg(figure).startswith("<svg")
        True
    """
    buffer = io.StringIO()
    with style():
        figure.savefig(buffer, format="svg", transparent=transparent, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def to_png(figure: Figure) -> bytes:
    """On white, at twice the pixels.

    Example:
        >>> with pictures.style():
        ...     figure, _ = pictures.panels(1, 1, width=100, height=50)
        >>> pictures.to_png(figure)[:4]
        b'\x89PNG'
    """
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=2 * _PIXELS_PER_INCH, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
