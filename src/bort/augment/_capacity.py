"""How many images of a batch an op is prepared for."""

from __future__ import annotations

import math
from functools import cache

_NEVER = 1e-15


@cache
def capacity(count: int, probability: float) -> int:
    """The smallest c such that more than c of ``count`` images draw an event of this probability with a chance below 10⁻¹⁵.

    A captured graph has fixed shapes, so an expensive op is done for a fixed number of images, whichever have drawn it. If
    more had, the last of the batch would go without: once in 10¹⁵ batches. For small batches c is the whole batch.
    """
    if probability >= 1:
        return count
    if probability <= 0:
        return 0
    more, tail = count, 0.0
    while more > 0:
        tail += math.exp(_log_probability(count, more, probability))
        if tail >= _NEVER:
            break
        more -= 1
    return more


def _log_probability(count: int, events: int, probability: float) -> float:
    """Of exactly so many events: the binomial distribution."""
    choices = math.lgamma(count + 1) - math.lgamma(events + 1) - math.lgamma(count - events + 1)
    return choices + events * math.log(probability) + (count - events) * math.log1p(-probability)
