"""Areas under deletion and insertion curves, by the relative score: two subjects beside each other, image by image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from bort import _intervals
from bort._intervals import Interval
from bort.report._measured import Measured, shared_methods
from bort.subject import Missing

End = Literal["deletion", "insertion"]
ENDS: Final[tuple[End, ...]] = ("deletion", "insertion")


@dataclass(frozen=True)
class AreaComparison:
    """Of one method."""

    method: str
    end: End
    base: float
    other: float
    """Means over the images that both have an area of."""
    interval: Interval | None
    """Of the difference, other − base."""
    count: int
    """n"""

    @property
    def is_better(self) -> bool | None:
        """Whether the other's area is smaller (deletion) or larger (insertion); None where the interval does not say."""
        if self.interval is None or self.interval.low <= 0 <= self.interval.high:
            return None
        return (self.interval.low > 0) == (self.end == "insertion")


def compare_areas(base: Measured, other: Measured) -> list[AreaComparison]:
    """Each method, and deletion and insertion of each."""
    return [_compare(base, other, method, end) for method in shared_methods([base, other]) for end in ENDS]


def _compare(base: Measured, other: Measured, method: str, end: End) -> AreaComparison:
    before, after = (_areas(subject, method, end) for subject in (base, other))
    both = ~(before.isnan() | after.isnan())
    before, after = before[both], after[both]
    interval = _intervals.mean(after - before)
    return AreaComparison(method, end, before.mean().item(), after.mean().item(), interval, len(before))


def gaps(subject: Measured, methods: Sequence[str]) -> Tensor:
    """(N,): insertion less deletion of each image, mean over the methods; nan where an image has no relative score.
    Missing if the subject cannot be looked at with one of them."""
    for method in methods:
        if method not in subject.methods:
            raise Missing(f"{subject.name} has no feature map, which {method} needs")
    each = [_areas(subject, m, "insertion") - _areas(subject, m, "deletion") for m in methods]
    return torch.stack(each).mean(dim=0)


def _areas(subject: Measured, method: str, end: End) -> Tensor:
    (evaluation,) = subject.evaluate([method]).values()
    both = evaluation.scores["relative"]
    return (both.insertion if end == "insertion" else both.deletion).double().cpu()
