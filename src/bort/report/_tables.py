"""Tables of a page, as HTML."""

from __future__ import annotations

from bort._html import table
from bort.measure import AREA_TITLES
from bort.report._measured import Measured


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
    return subject.audit.html(f"Audit of {subject.name}")


def deletion(subjects: list[Measured], methods: list[str]) -> str:
    """tab:insertion_deletion of these subjects, by all scores."""
    evaluations = {s.name: s.evaluate(methods) for s in subjects}
    header = ("method", "run", *AREA_TITLES)
    rows = [(method, name, *one[method].areas) for method in methods for name, one in evaluations.items()]
    return table(header, rows, "Areas under deletion and insertion curves", numbers=range(2, len(header)))
