"""Deletion and insertion of all runs on the same axes, as HTML for an exported page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from bort.app._page_state import PageState

if TYPE_CHECKING:
    from bort.app._export import RunExport

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 480, 220, 40, 36
_SCORES = {"relative": "relative logit", "logit": "logit", "probability": "probability"}

CURVES_CSS = """
figure.curve { max-width: 34rem; margin-top: 1rem; } .curve figcaption { max-width: none; }
.curve svg { width: 100%; height: auto; } .curve text { fill: var(--muted); font-size: 11px; }
.curve line { stroke: var(--grid); } .curve polyline { fill: none; stroke-width: 2; }
"""


def curves(exports: Sequence[RunExport], state: PageState) -> str:
    """A colour a run, deletion solid, insertion dashed, and a table of the areas; "n/a" where there is no relative score."""
    shown = [
        (number, export, export.facts["curves"][state.score])
        for number, export in enumerate(exports)
        if "curves" in export.facts  # of networks that have the map
    ]
    drawn = [(number, curve) for number, _, curve in shown if None not in curve["areas"]]
    rows = "".join(_row(number, export, curve) for number, export, curve in shown)
    head = "<tr><th></th><th>class</th><th>area, deletion ↓</th><th>area, insertion ↑</th></tr>"
    table = f'<div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
    words = (
        f"The {_SCORES[state.score]} as pixels are taken away (solid) or put in (dashed). ↓ lower, ↑ higher is better."
    )
    figure = f'<figure class="curve">{_plot(drawn, state)}<figcaption>{words}</figcaption></figure>'
    return f"<section><h2>Curves</h2>{figure}{table}</section>"


def _plot(drawn: Sequence[tuple[int, dict[str, Any]]], state: PageState) -> str:
    values: list[float] = [
        value for _, curve in drawn for end in ("deletion", "insertion") for value in curve[end]
    ] or [1.0]
    low, high = min(0.0, *values), max(values)

    def x(part: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 8) * part

    def y(value: float) -> float:
        return 8 + (_HEIGHT - 8 - _BOTTOM) * (1 - (value - low) / (high - low or 1))

    def line(number: int, curve: list[float], dash: str) -> str:
        points = " ".join(f"{x(n / (len(curve) - 1)):.1f},{y(value):.1f}" for n, value in enumerate(curve))
        return f'<polyline style="stroke: var(--run-{number})" stroke-dasharray="{dash}" points="{points}"/>'

    lines = "".join(
        line(number, curve[end], dash)
        for number, curve in drawn
        for end, dash in (("deletion", "none"), ("insertion", "5 3"))
    )
    heights = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text x="{_LEFT - 5}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>'
        for value in sorted({0.0, high}) + ([low] if low < -0.1 * (high - low) else [])  # their numbers would meet
    )
    percents = "".join(
        f'<text x="{x(part):.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="{anchor}">{part:.0%}</text>'
        for part, anchor in ((0, "start"), (0.25, "middle"), (0.5, "middle"), (0.75, "middle"), (1, "end"))
    )
    below = (
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 4}" text-anchor="middle">of the pixels are taken away or put in</text>'
    )
    label = escape(f"{_SCORES[state.score]} of each run, deletion and insertion")
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{heights}{percents}{below}{lines}</svg>'
    )


def _row(number: int, export: RunExport, curve: dict[str, Any]) -> str:
    areas = "".join(f"<td>{'n/a' if area is None else f'{area:.3f}'}</td>" for area in curve["areas"])
    of = export.facts["curve_class"]
    name = f"{of['name']}, {'which was chosen' if of['is_chosen'] else 'what the network says'}"
    return f"<tr><th>{dot(number)}{escape(export.run)}</th><td>{escape(name)}</td>{areas}</tr>"


def dot(number: int) -> str:
    """The colour of a run."""
    return f'<i class="dot" style="background: var(--run-{number})" aria-hidden="true"></i>'
