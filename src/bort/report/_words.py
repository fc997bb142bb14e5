"""Numbers and lists as the sentences under figures have them."""

from __future__ import annotations

import math
from collections.abc import Mapping


def number(value: float | None) -> str:
    return "not measured" if value is None or not math.isfinite(value) else f"{value:.2f}"


def percent(value: float) -> str:
    return "none (not defined)" if math.isnan(value) else f"{value:.0%}"


def listed(values: Mapping[str, float | str | None]) -> str:
    """ "SGD 0.31, Bort-S 0.88" """
    return ", ".join(f"{name} {value if isinstance(value, str) else number(value)}" for name, value in values.items())


def capital(text: str) -> str:
    """With its first letter in upper case, the rest as it is: names of runs stand in it."""
    return text[:1].upper() + text[1:]
