"""Numbers and lists as the sentences under figures have them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from bort._intervals import Interval
from bort.subject import Subject


def number(value: float | None) -> str:
    return "not measured" if value is None or not math.isfinite(value) else f"{value:.2f}".replace("-", "−")


def percent(value: float) -> str:
    return "none (not defined)" if math.isnan(value) else f"{value:.0%}"


def part_in_percent(value: float) -> str:
    """ "96.5%" """
    return f"{value:.1%}"


def span(interval: Interval, *, percent: bool = False, signed: bool = False) -> str:
    """ "95.2 … 97.5%", "+0.06 … +0.10". Differences of narrow intervals get a place more: their sign is what is looked at."""
    factor, unit = (100, "" if signed else "%") if percent else (1, "")
    is_narrow = factor * (interval.high - interval.low) < (5 if percent else 0.1)
    places = (1 if percent else 2) + (is_narrow and signed)
    sign = "+" if signed else ""
    ends = (f"{factor * end:{sign}.{places}f}" for end in (interval.low, interval.high))
    return f"{' … '.join(ends)}{unit}".replace("-", "−")


def plural(count: int, what: str) -> str:
    """ "1,000 images" """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def listed(values: Mapping[str, float | str | None]) -> str:
    """ "SGD 0.31, Bort-S 0.88" """
    return ", ".join(f"{name} {value if isinstance(value, str) else number(value)}" for name, value in values.items())


def joined(names: list[str]) -> str:
    """ "a, b and c" """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def tested_on(subjects: Iterable[Subject]) -> str:
    """What the accuracies in their histories are of."""
    held_out = {"held out" in subject.facts for subject in subjects}
    if len(held_out) > 1:
        return "images tested on"
    return "held-out training images" if True in held_out else "test images"


def by_reason(missing: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """(reason, what is missing for it), the reasons in the order in which they come first."""
    reasons: dict[str, list[str]] = {}
    for what, why in missing.items():
        reasons.setdefault(why, []).append(what)
    return list(reasons.items())


def capital(text: str) -> str:
    """With its first letter in upper case, the rest as it is: names of runs stand in it."""
    return text[:1].upper() + text[1:]
