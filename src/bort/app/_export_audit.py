"""The audits of all runs as one table, as HTML for an exported page: the page's, with its order and its differences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from bort.app._export_curves import dot
from bort.app._page_state import PageState
from bort.measure import COLUMNS, Audit, Column, LayerAudit

Row = Mapping[str, LayerAudit]
"""A layer of those runs that have it."""


@dataclass(frozen=True)
class _Part:
    """A run's part of a column, or what the first run has more than it."""

    run: str
    number: int
    less: bool = False


def table(audits: Mapping[str, Audit], state: PageState) -> str:
    """Layers are matched by their names; columns that say the same of all runs have one part."""
    rows: dict[str, dict[str, LayerAudit]] = {}
    for run, audit in audits.items():
        for layer in audit:
            rows.setdefault(layer.name, {})[run] = layer
    first = next(iter(audits))
    parts = {column.key: _parts(column, list(audits), list(rows.values()), state) for column in COLUMNS[1:]}
    ordered = _sorted(list(rows.values()), list(audits), state)
    titles = "".join(
        f'<th colspan="{len(parts[c.key])}" title="{escape(c.meaning)}">{escape(c.title)}</th>' for c in COLUMNS[1:]
    )
    names = "".join(f"<th>{_name(part, first)}</th>" for column in COLUMNS[1:] for part in parts[column.key])
    body = "".join(
        f"<tr><th>{_layer(row, audits)}</th>"
        + "".join(f"<td>{escape(_cell(c, part, row, first))}</td>" for c in COLUMNS[1:] for part in parts[c.key])
        + "</tr>"
        for row in ordered
    )
    head = f'<tr><th rowspan="2">layer</th>{titles}</tr><tr>{names}</tr>'
    return f'<div class="wide"><table class="dense"><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _parts(column: Column, runs: list[str], rows: list[dict[str, LayerAudit]], state: PageState) -> list[_Part | None]:
    if len(runs) == 1 or all(len({column.show(layer) for layer in row.values()}) == 1 for row in rows):
        return [None]
    measured = any(_numbers(layer, column.key) for row in rows for layer in row.values())
    if state.difference and measured:
        return [_Part(run, number, less=True) for number, run in enumerate(runs) if number]
    return [_Part(run, number) for number, run in enumerate(runs)]


def _name(part: _Part | None, first: str) -> str:
    if part is None:
        return ""
    return (f"{escape(first)} − " if part.less else "") + dot(part.number) + escape(part.run)


def _layer(row: Row, audits: Mapping[str, Audit]) -> str:
    only = f" (only in {', '.join(row)})" if len(row) < len(audits) else ""
    return escape(next(iter(row.values())).name + only)


def _cell(column: Column, part: _Part | None, row: Row, first: str) -> str:
    if part is None:
        return column.show(next(iter(row.values())))
    if not part.less:
        return column.show(row[part.run]) if part.run in row else ""
    values = _difference(row, column.key, first, part.run)
    if values is None:
        return ""
    digits = re.search(r"\.(\d+)", column.show(row[first]))
    return " … ".join(f"{value:+.{len(digits[1]) if digits else 2}f}" for value in values)


def _sorted(rows: list[dict[str, LayerAudit]], runs: list[str], state: PageState) -> list[dict[str, LayerAudit]]:
    """In the order that the page's state names: "ratio.1", or "-ratio.1" the largest first; those without a number last."""
    asked = re.fullmatch(r"(-?)(\w+)\.(\d+)", state.sort)
    if asked is None or int(asked[3]) >= len(runs):
        return rows
    key, run = asked[2], runs[int(asked[3])]
    sign = -1 if asked[1] else 1

    def value(row: dict[str, LayerAudit]) -> tuple[bool, float]:
        is_difference = state.difference and run != runs[0]
        values = _difference(row, key, runs[0], run) if is_difference else _numbers(row.get(run), key)
        return values is None, sign * values[-1] if values else 0.0

    return sorted(rows, key=value)


def _difference(row: Row, key: str, first: str, other: str) -> list[float] | None:
    one, less = _numbers(row.get(first), key), _numbers(row.get(other), key)
    return [a - b for a, b in zip(one, less, strict=True)] if one and less else None


def _numbers(layer: LayerAudit | None, key: str) -> list[float] | None:
    """One, or the two ends of a range; None where there is none."""
    value = None if layer is None or key == "shape" else getattr(layer, key, None)
    if isinstance(value, tuple):
        return list(value)
    return [value] if isinstance(value, float) and value == value else None
