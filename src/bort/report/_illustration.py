"""A figure with what belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from bort import _html
from bort.pictures import to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Illustration:
    name: str
    """Of its files, and its anchor on the page."""
    title: str
    paper: str
    """The figure or table of the paper that it repeats, or the section that it belongs to."""
    look: str
    """What to look for, with these subjects' own numbers."""
    alt: str
    """What the figure shows, for those who do not see it."""
    figure: Figure

    def _repr_html_(self) -> str:
        image = _html.image(to_svg(self.figure, transparent=False).encode(), "svg+xml", self.alt)
        return _html.notebook(f"<h4>{escape(self.title)}</h4>", _html.paragraphs([self.look]), image)
