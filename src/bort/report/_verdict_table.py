"""The table of verdicts, as HTML: on a phone each claim is a card."""

from __future__ import annotations

from html import escape
from typing import Final, get_args

from bort._colours import DIFFERENT
from bort.report._measured import Measured
from bort.report._verdict import Comparison, Estimate, Outcome, Verdict
from bort.report._verdicts import baseline_of, is_claimed
from bort.report._words import by_reason, capital, plural

_SIGNS: Final[dict[Outcome, tuple[str, str]]] = {
    "held": ("✓", "held"),
    "did not hold": ("✗", "failed"),
    "not decided": ("?", "open"),
}
"""The sign before an outcome, and the class that gives it its colour."""


def verdict_table(subjects: list[Measured], verdicts: list[Verdict], unsaid: dict[str, str]) -> str:
    base = baseline_of(subjects)
    others = [subject.name for subject in subjects if subject is not base]
    counts = "".join(_counts(name, verdicts) for name in others)
    against = {name: f"{name} against {base.name}" for name in others}
    heads = ['<th scope="col">claim of the paper</th>' if others else '<th scope="col">measured</th>']
    heads += [f'<th scope="col">{run_name(subject.name, number)}</th>' for number, subject in enumerate(subjects)]
    heads += [f'<th scope="col">{escape(words)}</th>' for words in against.values()]
    rows = []
    for verdict in verdicts:
        cells = [_claim(verdict, is_claim=bool(others))]
        cells += [_estimate(s.name, verdict.estimates.get(s.name)) for s in subjects]
        compared = {comparison.name: comparison for comparison in verdict.comparisons}
        cells += [_comparison(against[name], compared.get(name)) for name in others]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    body, class_ = "\n".join(rows), "verdicts" if others else "verdicts single"
    return (
        f'{counts}<div class="wide" tabindex="0" role="region" aria-label="Verdicts"><table class="{class_}">\n'
        f"<thead><tr>{''.join(heads)}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n{_notes(subjects, unsaid)}"
    )


def _counts(name: str, verdicts: list[Verdict]) -> str:
    """ "Bort-S: 5 of 8 claims held, 1 did not hold, 2 are not decided." """
    outcomes = [c.outcome for verdict in verdicts for c in verdict.comparisons if c.name == name and c.outcome]
    if not outcomes:
        return ""
    held, failed, undecided = (outcomes.count(outcome) for outcome in get_args(Outcome))
    words = f"{held} of {plural(len(outcomes), 'claim')} held, {failed} did not hold, {undecided} not decided."
    return f"<p>{escape(name)}: {words}</p>"


def run_name(name: str, number: int) -> str:
    """With the run's colour before it."""
    square = f'<i class="run-{number % DIFFERENT}" aria-hidden="true"></i>'
    return f'<span class="run">{square}<span>{escape(name)}</span></span>'


def _claim(verdict: Verdict, *, is_claim: bool) -> str:
    """Of one subject only what is measured: there is nothing to compare it with."""
    if is_claim:
        return f'<th scope="row">{escape(verdict.claim)}{_small((verdict.measure, verdict.paper))}</th>'
    return f'<th scope="row">{escape(capital(verdict.measure))}{_small((verdict.paper,))}</th>'


def _estimate(name: str, estimate: Estimate | None) -> str:
    if estimate is None:
        return f'<td data-label="{escape(name)}">–</td>'
    return f'<td data-label="{escape(name)}"><b>{escape(estimate.shown)}</b>{_small(estimate.details)}</td>'


def _comparison(title: str, comparison: Comparison | None) -> str:
    label = f'class="compared" data-label="{escape(title)}"'
    if comparison is None:
        return f"<td {label}>–</td>"
    if comparison.outcome is None:
        return f"<td {label}>{_small(comparison.details)}</td>"
    sign, class_ = _SIGNS[comparison.outcome]
    return f'<td {label}><b class="{class_}">{sign} {comparison.outcome}</b>{_small(comparison.details)}</td>'


def _small(lines: tuple[str, ...]) -> str:
    return "".join(f"<small>{escape(line)}</small>" for line in lines)


def _notes(subjects: list[Measured], unsaid: dict[str, str]) -> str:
    base = baseline_of(subjects)
    others = [subject for subject in subjects if subject is not base]
    sentences = [
        "Below a value its 95% interval: it covers the choice of the images, not of the training. Each network is one "
        "training with one seed, and another seed may change a number by more than its interval."
    ]
    if any(is_claimed(base, other) for other in others):
        sentences.append(
            "Held: the whole interval is on the claimed side; did not hold: all of it is on the other; not decided: it "
            "contains the limit. Layers are counted as if they were a sample: most of them have to be better."
        )
        if all(subject.subject.training is None for subject in subjects):
            sentences.append(
                f"It is not known which of them were trained with Bort; the others are compared with the first, {base.name}."
            )
    elif others:
        sentences.append("The paper claims nothing of these trainings beside each other: there are differences only.")
    text = f'<p class="note">{escape(" ".join(sentences))}</p>'
    if unsaid:
        reasons = "; ".join(f"{', '.join(f'“{claim}”' for claim in what)} ({why})" for why, what in by_reason(unsaid))
        text += f'\n<p class="note">Not measured: {escape(reasons)}.</p>'
    return text
