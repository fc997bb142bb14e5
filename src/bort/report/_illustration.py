"""A figure with what belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from bort import _html
from bort.pictures import to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH: Final = 460
"""Pixels of every figure. A phone shows it in about 350 points, and so letters of 9 points in 9."""


@dataclass(frozen=True)
class Address:
    """Where the explorer shows what a figure shows."""

    words: str
    query: str
    """Behind the explorer's own address: "?view=inside&image=test-3"."""


@dataclass(frozen=True)
class Drawn:
    """What the function of a figure returns."""

    figure: Figure
    look: str
    """What to look for, with these subjects' own numbers."""
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True)
class Illustration:
    """A figure of a report with its words, as :func:`bort.report.draw` returns it. A notebook shows it.

    Example:
        >>> drawn = report.draw("sigma", subject.of_models(nets.create("lenet"), torch.rand(4, 1, 28, 28)))
        >>> drawn.title, drawn.paper
        ('Singular values', 'Paper, section 3.2')
    """

    name: str
    """Of its files, and its anchor on the page."""
    title: str
    paper: str
    """The figure, table or section of the paper that it belongs to: "Paper, figure 4"."""
    look: str
    """What to look for, with these subjects' own numbers."""
    alt: str
    """What the figure shows, for those who do not see it."""
    figure: Figure
    addresses: tuple[Address, ...] = ()

    def _repr_html_(self) -> str:
        image = _html.image(to_svg(self.figure, transparent=False).encode(), "svg+xml", self.alt)
        return _html.notebook(f"<h4>{escape(self.title)}</h4>", _html.paragraphs([self.look]), image)
