"""A figure with what belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Illustration:
    name: str
    """Of its files and its anchor."""
    title: str
    paper: str
    """The figure of the paper that it is, or the section that it belongs to."""
    look: str
    """What to look for, with these runs' own numbers."""
    alt: str
    figure: Figure
