"""What a table of verdicts is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bort._intervals import Interval

Outcome = Literal["held", "did not hold", "not decided"]


@dataclass(frozen=True)
class Estimate:
    """A number of one subject.

    Example:
        >>> report.Estimate(0.31, None, count=3, shown="0.31", details=("3 layers",)).value
        0.31
    """

    value: float
    interval: Interval | None
    """Where the value of all images lies, with 95%; None of what is no sample, such as the layers of a network."""
    count: int
    """n"""
    shown: str
    """The value as the table has it."""
    details: tuple[str, ...]
    """The lines below it: the interval, and n of what."""


@dataclass(frozen=True)
class Comparison:
    """A subject beside the baseline.

    Example:
        >>> report.Comparison("bort", "sgd", -0.2, None, count=3, outcome="held", details=()).outcome
        'held'
    """

    name: str
    baseline: str
    difference: float
    interval: Interval | None
    """Of the difference; of a count of layers, of the part of them that are better."""
    count: int
    """n: of what both have."""
    outcome: Outcome | None
    """None where the paper claims nothing: of two trainings that both have the constraint, or of which none has it."""
    details: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """A claim of the paper, and what these subjects say of it.

    Example:
        >>> made = report.make(subject.of_models({"a": nets.create("lenet"), "b": nets.create("lenet")}))
        >>> all(isinstance(verdict, report.Verdict) for verdict in made.verdicts)
        True
    """

    claim: str
    measure: str
    """What is measured."""
    paper: str
    estimates: dict[str, Estimate]
    """By the subjects' names; those of which it cannot be measured are not in it."""
    comparisons: tuple[Comparison, ...]


def outcome_of(interval: Interval | None, limit: float = 0.0) -> Outcome:
    """Held if the whole interval is above the limit, and not if it is below."""
    if interval is None or interval.low <= limit <= interval.high:
        return "not decided"
    return "held" if interval.low > limit else "did not hold"
