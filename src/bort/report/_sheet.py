"""Sheets of pictures: at most six beside each other, below the name of their row; as wide as every figure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bort.pictures import INK, MUTED, Picture, enlarged, reduced, style
from bort.report._illustration import WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS: Final = 6
_GAP: Final = 6
_TITLE: Final = 22  # pixels for the name of a row
_LINE: Final = 15  # and for a line of words
_BETWEEN: Final = 18  # between the parts of a sheet that is broken
_WIDEST: Final = 140  # a picture, if there are few
_LETTER: Final = 6.6  # the mean width of a letter
_SHARP: Final = 160  # pixels of a picture's longer side: about two for each that a large screen has for it
_PER_INCH: Final = 96


@dataclass(frozen=True)
class Words:
    """A line under a picture."""

    text: str
    colour: str = MUTED


@dataclass(frozen=True)
class Cell:
    picture: Picture
    words: tuple[Words, ...] = ()


@dataclass(frozen=True)
class Row:
    title: str
    cells: Sequence[Cell]
    colour: str | None = None
    """That of the run, if it is a run's row."""


def sheet(rows: Sequence[Row], columns: int = COLUMNS) -> Figure:
    """The rows below each other. With more pictures than columns: all rows of the first pictures, then of the next ones."""
    from matplotlib.figure import Figure

    count = max(len(row.cells) for row in rows)
    columns = math.ceil(count / math.ceil(count / columns))  # of two parts none has much less than the other
    width = min(_WIDEST, (WIDTH - _GAP * (columns - 1)) / columns)
    height = width * rows[0].cells[0].picture.shape[0] / rows[0].cells[0].picture.shape[1]
    broken = [Row(row.title, [_broken(cell, width) for cell in row.cells], row.colour) for row in rows]
    placed, top = [], 0.0
    for start in range(0, count, columns):
        top += _BETWEEN if start else 0
        for row in broken:
            cells = row.cells[start : start + columns]
            placed.append((top, Row(row.title, cells, row.colour)))
            top += _TITLE + height + _LINE * max((len(cell.words) for cell in cells), default=0) + _GAP
    with style():
        figure = Figure(figsize=(WIDTH / _PER_INCH, top / _PER_INCH), dpi=_PER_INCH)
        for place, row in placed:
            _draw(figure, row, place, width, height, top)
    return figure


def _draw(figure: Figure, row: Row, top: float, width: float, height: float, total: float) -> None:
    """A row that begins ``top`` pixels below the upper edge of a sheet of ``total`` pixels."""
    if row.colour is not None:
        figure.text(0, 1 - (top + 4) / total, "■", color=row.colour, va="top", fontsize=10)
    left = 0 if row.colour is None else 15 / WIDTH
    figure.text(left, 1 - (top + 4) / total, _cut(row.title, WIDTH - 20), color=INK, va="top", fontsize=9.5)
    for column, cell in enumerate(row.cells):
        x, bottom = column * (width + _GAP), top + _TITLE + height
        axes = figure.add_axes((x / WIDTH, 1 - bottom / total, width / WIDTH, height / total))
        axes.imshow(_sharp(cell.picture), interpolation="none", aspect="auto")
        axes.set_axis_off()
        for line, words in enumerate(cell.words):
            figure.text(
                (x + width / 2) / WIDTH,
                1 - (bottom + 3 + line * _LINE) / total,
                words.text,
                color=words.colour,
                ha="center",
                va="top",
                fontsize=9,
            )


def _sharp(image: Picture) -> Picture:
    """Small pictures with each pixel repeated, so that no browser blurs them; large ones no larger than they are shown."""
    return enlarged(image, _SHARP) if max(image.shape[:2]) < _SHARP else reduced(image, _SHARP)


def _broken(cell: Cell, width: float) -> Cell:
    """With each of its lines in at most two, as wide as the picture."""
    lines = []
    for words in cell.words:
        first, *others = textwrap.wrap(words.text, max(4, int(width / _LETTER))) or [""]
        lines.append(Words(first, words.colour))
        if others:
            lines.append(Words(_cut(" ".join(others), width), words.colour))
    return Cell(cell.picture, tuple(lines))


def _cut(text: str, width: float) -> str:
    """To the width in pixels."""
    most = max(4, int(width / _LETTER))
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
