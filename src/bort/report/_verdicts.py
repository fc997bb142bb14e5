"""Which of the paper's claims hold for these subjects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bort.report._claims import CLAIMS, Claim
from bort.report._measured import Measured
from bort.report._verdict import Comparison, Estimate, Verdict
from bort.subject import Missing


def verdicts(subjects: list[Measured], claims: Sequence[Claim] = CLAIMS) -> tuple[list[Verdict], dict[str, str]]:
    """What can be said of each claim; and the claims of which nothing can (of one subject: what was to be measured), with the
    reason."""
    said: list[Verdict] = []
    unsaid: dict[str, str] = {}
    base = baseline_of(subjects)
    for claim in claims:
        title = claim.claim if len(subjects) > 1 else claim.measure
        estimates: dict[str, Estimate] = {}
        for subject in subjects:
            try:
                estimates[subject.name] = claim.estimate(subject)
            except Missing as reason:
                unsaid.setdefault(title, str(reason))
        if not estimates:
            continue
        unsaid.pop(title, None)
        comparisons: list[Comparison] = []
        for other in subjects:
            if other is not base and {base.name, other.name} <= estimates.keys():
                compared = claim.compare(base, other)
                if compared is not None:
                    comparisons.append(compared if is_claimed(base, other) else replace(compared, outcome=None))
        said.append(Verdict(claim.claim, claim.measure, claim.paper, estimates, tuple(comparisons)))
    return said, unsaid


def baseline_of(subjects: list[Measured]) -> Measured:
    """What the others are compared with: the first that is known to be trained without the constraint; else the first of
    which it is not known; else the first."""
    without = [s for s in subjects if s.subject.training is not None and not s.subject.training.constraint]
    unknown = [s for s in subjects if s.subject.training is None]
    return (without or unknown or subjects)[0]


def is_claimed(base: Measured, other: Measured) -> bool:
    """Whether the paper says something of the two: one may have been trained without the constraint, the other with it."""
    before, after = base.subject.training, other.subject.training
    return (before is None or not before.constraint) and (after is None or bool(after.constraint))
