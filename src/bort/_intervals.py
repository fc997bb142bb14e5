r"""95% intervals: of a part, of the difference of two parts, of a mean.

.. math::
    \text{Wilson} \quad & \frac{k + z^2/2}{n + z^2} \pm \frac{z}{n + z^2} \sqrt{\frac{k (n - k)}{n} + \frac{z^2}{4}} \\
    \text{Student} \quad & \bar x \pm t_{n-1} \, s / \sqrt n

and Newcombe's for two parts of the same images (Statistics in Medicine 17, 1998, his tenth method), which adds the two Wilson
intervals like the legs of a triangle, less what the two parts have in common.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

_Z = 1.959963984540054  # P(|z| < _Z) = 95%


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


def part(successes: float, count: int) -> Interval:
    """Wilson's, of the true part if ``successes`` of ``count`` have been seen."""
    middle = (successes + _Z**2 / 2) / (count + _Z**2)
    half = _Z / (count + _Z**2) * math.sqrt(successes * (count - successes) / count + _Z**2 / 4)
    return Interval(max(0.0, middle - half), min(1.0, middle + half))


def difference_of_parts(ones: Tensor, others: Tensor) -> Interval:
    """Newcombe's, of the part of ``others`` that is true less that of ``ones``: boolean, (N,), of the same N images."""
    count = len(ones)
    both, neither = int((ones & others).sum()), int((~ones & ~others).sum())
    only_one, only_other = int((ones & ~others).sum()), int((~ones & others).sum())
    p, q = (both + only_other) / count, (both + only_one) / count
    of_p, of_q = part(p * count, count), part(q * count, count)
    common = _common(both, only_one, only_other, neither)

    def leg(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * common * a * b + b * b))

    return Interval(p - q - leg(p - of_p.low, of_q.high - q), p - q + leg(of_p.high - p, q - of_q.low))


def _common(both: int, only_one: int, only_other: int, neither: int) -> float:
    """φ, the correlation of the two answers, made smaller by a correction for continuity where it is positive."""
    product = (both + only_one) * (only_other + neither) * (both + only_other) * (only_one + neither)
    excess: float = both * neither - only_one * only_other
    if excess > 0:
        excess = max(0.0, excess - (both + only_one + only_other + neither) / 2)
    return excess / math.sqrt(product) if product else 0.0


def mean(values: Tensor, *, best_of: int = 1) -> Interval | None:
    """Student's, of the mean of a sample (N,); None of fewer than two values.

    For a sample chosen for its mean from ``best_of`` samples, Bonferroni's: all of their intervals together hold the truth
    with 95%.
    """
    from scipy.special import stdtrit

    count = len(values)
    if count < 2:
        return None
    sample = values.double()
    half = float(stdtrit(count - 1, 1 - 0.025 / best_of)) * sample.std().item() / math.sqrt(count)
    return Interval(sample.mean().item() - half, sample.mean().item() + half)
