"""Tables of a page, as HTML."""

from __future__ import annotations

from html import escape

from bort import explain
from bort._html import table
from bort.measure import AREA_TITLES, COLUMNS
from bort.report._areas import compare_areas
from bort.report._measured import Measured, shared_methods
from bort.report._verdicts import baseline_of
from bort.report._words import number, plural, span

_BETTER = {True: "✓ better", False: "✗ worse", None: "? open"}


def facts(subjects: list[Measured]) -> tuple[str, str]:
    """(title, table) of what was trained and how: what differs, and the rest folded away. A row a fact, a column a subject,
    "–" where a subject lacks one."""
    columns = [measured.subject.facts for measured in subjects]
    labels = _merged([list(column) for column in columns])
    rows = [(label, *(column.get(label, "–") for column in columns)) for label in labels]
    header = ("", *(s.name for s in subjects))
    differing = [row for row in rows if len(set(row[1:])) > 1]
    same = [row for row in rows if row not in differing]
    if len(subjects) == 1 or not differing:
        return "Settings", table(header, rows, "Settings", kind="wrap")
    title = "Settings that differ"
    shown = table(header, differing, title, kind="wrap")
    rest = table(("", "all"), [row[:2] for row in same], "Settings that are the same", kind="wrap")
    words = f"{plural(len(same), 'more setting')}, the same for all"
    return title, shown + (f"<details><summary>{words}</summary>{rest}</details>" if same else "")


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


def audits(subjects: list[Measured]) -> str:
    """A table a subject, and what their columns mean."""
    tables = "".join(f"<h4>{escape(s.name)}</h4>{s.audit.html(f'Audit of {s.name}')}" for s in subjects)
    meanings = "".join(f"<dt>{escape(c.title)}</dt><dd>{escape(c.meaning)}</dd>" for c in COLUMNS)
    return f'{tables}<dl class="columns">{meanings}</dl>'


def deletion(subjects: list[Measured]) -> str:
    """tab:insertion_deletion of these subjects: beside the baseline, and, folded away, by all scores."""
    base = baseline_of(subjects)
    compared = "".join(_compared(base, subject) for subject in subjects if subject is not base)
    methods = shared_methods(subjects)
    evaluations = {s.name: s.evaluate(methods) for s in subjects}
    header = ("method", "run", *AREA_TITLES)
    rows = [
        (explain.get(method).label, name, *one[method].areas) for method in methods for name, one in evaluations.items()
    ]
    areas = table(header, rows, "Areas under deletion and insertion curves", numbers=range(2, len(header)))
    if not compared:
        return areas
    return f"{compared}<details><summary>Areas by all three scores</summary>{areas}</details>"


def _compared(base: Measured, other: Measured) -> str:
    rows = []
    for area in compare_areas(base, other):
        interval = "–" if area.interval is None else span(area.interval, signed=True)
        sign = "↓" if area.end == "deletion" else "↑"
        values = (number(area.base), number(area.other), interval, str(area.count), _BETTER[area.is_better])
        rows.append((explain.get(area.method).label, f"{area.end} {sign}", *values))
    header = ("method", "area", base.name, other.name, "difference, 95%", "n", "")
    return table(header, rows, f"Areas of {other.name} against {base.name}", numbers=(2, 3, 4, 5))
