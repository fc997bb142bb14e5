"""Tables of a page, as HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

from bort.measure import COLUMNS, SCORES
from bort.report._measured import Measured


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str,
    *,
    numbers: Sequence[int] = (),
    kind: Literal["", "wrap", "dense"] = "",
) -> str:
    """The columns in ``numbers`` are right-aligned. The first cell of a row is its header. ``kind`` is "wrap" for long texts,
    "dense" for many columns."""

    def line(row: Sequence[str], *, is_header: bool) -> str:
        cells = []
        for column, text in enumerate(row):
            align = ' class="number"' if column in numbers else ""
            name = "th" if is_header or column == 0 else "td"
            scope = ' scope="col"' if is_header else ' scope="row"' if column == 0 else ""
            cells.append(f"<{name}{scope}{align}>{escape(text)}</{name}>")
        return f"<tr>{''.join(cells)}</tr>"

    class_ = f' class="{kind}"' if kind else ""
    body = "\n".join(line(row, is_header=False) for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table{class_}>\n'
        f"<thead>{line(header, is_header=True)}</thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def facts(subjects: list[Measured]) -> str:
    """What was trained and how: a row a fact, a column a subject, "–" where a subject lacks one."""
    columns = [measured.subject.facts for measured in subjects]
    labels = _merged([list(column) for column in columns])
    rows = [(label, *(column.get(label, "–") for column in columns)) for label in labels]
    return table(("", *(s.name for s in subjects)), rows, "What was trained and how", kind="wrap")


def _merged(lists: list[list[str]]) -> list[str]:
    """The labels of all lists in the order of the first; one that only a later list has comes after the label before it."""
    merged: list[str] = []
    for labels in lists:
        place = 0
        for label in labels:
            if label not in merged:
                merged.insert(place, label)
            place = merged.index(label) + 1
    return merged


def audit(subject: Measured) -> str:
    rows = [[column.show(layer) for column in COLUMNS] for layer in subject.audit]
    numbers = [place for place, column in enumerate(COLUMNS) if column.is_number]
    return table([column.title for column in COLUMNS], rows, f"Audit of {subject.name}", numbers=numbers, kind="dense")


def deletion(subjects: list[Measured], methods: list[str]) -> str:
    """tab:insertion_deletion of these subjects, by all scores."""
    evaluations = {s.name: s.evaluate(methods) for s in subjects}
    header = ("method", "run", *(f"{score} {end}" for score in SCORES for end in ("del. ↓", "ins. ↑")))
    rows = [
        (method, name, *(_area(one[method].scores[score].means[which]) for score in SCORES for which in (0, 1)))
        for method in methods
        for name, one in evaluations.items()
    ]
    return table(header, rows, "Areas under deletion and insertion curves", numbers=range(2, len(header)))


def _area(mean: float) -> str:
    return "–" if math.isnan(mean) else f"{mean:.3f}"
