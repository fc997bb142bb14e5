"""What a view shows, in one sentence made of its numbers.

Sentences say what did not improve as plainly as what did. Two numbers that read the same are called equal; over several
images, so are means whose difference is within noise: the mean of the paired differences is less than twice its standard
error from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Values = Mapping[str, float]
"""A number a run, by its name, in the page's order."""


@dataclass(frozen=True)
class Quantity:
    """What is compared, and the words for it. In the words {one} and {other} are runs, {all} several of them."""

    alone: str
    """With {value}."""
    more: str
    equal: str
    most: str
    """Of three or more runs; {all} are those with the best number."""
    number: str
    counted: str
    """Of the images: "more for 61 of them"."""
    higher_is_better: bool = True
    digits: int = 2

    def show(self, value: float) -> str:
        text = f"{value:.{self.digits}f}"
        return text.removeprefix("-") if float(text) == 0 else text

    def is_better(self, one: float, other: float) -> bool:
        return one > other if self.higher_is_better else one < other


KEPT: Final = Quantity(
    alone="{one} keeps this image with correlation {value}",
    more="{one} keeps more of this image than {other}",
    equal="{all} keep equally much of this image",
    most="Most of this image is kept by {all}",
    number="correlation",
    counted="more",
)
DELETED: Final = Quantity(
    alone="{value} by deletion",
    more="By deletion {one}'s map is better than {other}'s",
    equal="By deletion the maps of {all} are equally good",
    most="By deletion the best map is that of {all}",
    number="area",
    counted="better",
    higher_is_better=False,
    digits=3,
)
INSERTED: Final = Quantity(
    alone="{value} by insertion",
    more="by insertion {one}'s is better than {other}'s",
    equal="by insertion those of {all} are equally good",
    most="by insertion it is that of {all}",
    number="area",
    counted="better",
    digits=3,
)
NEARER: Final = Quantity(
    alone="{one}'s layers are up to {value} away from WᵀW = I (residual)",
    more="{one} is nearer to WᵀW = I than {other}",
    equal="{all} are equally near to WᵀW = I",
    most="The smallest distance to WᵀW = I is that of {all}",
    number="largest residual",
    counted="",
    higher_is_better=False,
)
LOST: Final = Quantity(
    alone="on average a layer cannot bring back {value} of its input (ratio)",
    more="{one}'s layers lose less of their inputs than {other}'s",
    equal="the layers of {all} lose equally much of their inputs",
    most="the layers of {all} lose least of their inputs",
    number="mean ratio",
    counted="",
    higher_is_better=False,
)


def here(quantity: Quantity, values: Values) -> str:
    """The numbers of this image, or of the networks themselves."""
    names = list(values)
    if len(names) == 1:
        return quantity.alone.format(one=names[0], value=quantity.show(values[names[0]]))
    ranked = _ranked(quantity, values)
    best = [name for name in names if quantity.show(values[name]) == quantity.show(values[ranked[0]])]
    numbers = [quantity.show(values[name]) for name in ranked]
    if len(best) == len(names):
        return f"{quantity.equal.format(all=listed(names))}: {quantity.number} {listed(numbers)}"
    if len(names) == 2:
        return f"{quantity.more.format(one=ranked[0], other=ranked[1])}: {quantity.number} {' against '.join(numbers)}"
    return f"{quantity.most.format(all=listed(best))}: {quantity.number} {_by_name(quantity, values, ranked)}"


def maps(deletion: Values, insertion: Values) -> str:
    """Which map is better, by the areas under both curves."""
    both = (DELETED, deletion), (INSERTED, insertion)
    names = list(deletion)
    if len(names) == 1:
        return f"{names[0]}'s areas under the curves are {listed([here(*end) for end in both])}"
    ranked = [_ranked(*end) for end in both]
    numbers = [
        [quantity.show(values[name]) for name in own] for (quantity, values), own in zip(both, ranked, strict=True)
    ]
    if len(names) == 2 and ranked[0] == ranked[1] and all(one != other for one, other in numbers):
        (one, other), (deleted, inserted) = ranked[0], (" against ".join(own) for own in numbers)
        return f"{one}'s map is better than {other}'s by deletion (area {deleted}) and by insertion ({inserted})"
    return ", ".join(here(*end) for end in both)


def over(quantity: Quantity, values: Values, images: Mapping[str, Sequence[float]], start: str = "") -> str:
    """The means over several images, each run's numbers of the same images in the same order, beside those of this image."""
    count = len(next(iter(images.values())))
    mean = {name: sum(numbers) / count for name, numbers in images.items()}
    start = start or f"over {count} images"
    if len(mean) == 1:
        return f"{start} {quantity.show(mean[next(iter(mean))])}"
    if len(mean) > 2:
        return f"{start} {_by_name(quantity, mean, _ranked(quantity, mean))}"
    first, second = _ranked(quantity, values)
    is_tie = quantity.show(values[first]) == quantity.show(values[second])
    if is_tie and quantity.is_better(mean[second], mean[first]):
        first, second = second, first
    shown = [quantity.show(mean[first]), quantity.show(mean[second])]
    if shown[0] == shown[1] or within_noise(images[first], images[second]):
        return f"{start} the two are equal within noise, {listed(shown)}"
    wins = sum(quantity.is_better(one, other) for one, other in zip(images[first], images[second], strict=True))
    numbers = f"{' against '.join(shown)}, {quantity.counted} for {wins} of them"
    if is_tie:
        return f"{start} {first} is ahead, {numbers}"
    is_reversed = quantity.is_better(mean[second], mean[first])
    return f"{start} it is the other way round, {numbers}" if is_reversed else f"{start} {numbers}"


def within_noise(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the mean of the paired differences is less than two standard errors from 0."""
    differences = [a - b for a, b in zip(one, other, strict=True)]
    count = len(differences)
    mean = sum(differences) / count
    if count < 2:
        return mean == 0
    variance = sum((difference - mean) ** 2 for difference in differences) / (count - 1)
    return abs(mean) <= 2 * math.sqrt(variance / count)


def found(right: Mapping[str, Sequence[bool]], differing: int) -> str:
    """How many test images each run names rightly, the same images in the same order; of several runs, of how many they do
    not say the same."""
    counts = {name: sum(own) for name, own in right.items()}
    of = f"of {len(next(iter(right.values())))} test images"
    names = sorted(counts, key=lambda name: -counts[name])
    apart = f"; they do not agree on {differing}" if len(names) > 1 else ""
    if len(names) == 2:
        numbers = f"{counts[names[0]]} and {counts[names[1]]} {of}"
        if within_noise(
            [float(is_right) for is_right in right[names[0]]], [float(is_right) for is_right in right[names[1]]]
        ):
            return f"{names[0]} and {names[1]} are right equally often within noise: {numbers}{apart}"
        return f"{names[0]} is right more often than {names[1]}: {numbers}{apart}"
    return f"{listed([f'{name} is right for {counts[name]}' for name in names])} {of}{apart}"


@dataclass(frozen=True)
class Verdicts:
    """What a network says of the two images of a transplant, and of what was made of them."""

    source: str
    target: str
    made: str

    @property
    def is_fooled(self) -> bool:
        return self.made == self.target != self.source


def fooled(verdicts: Mapping[str, Verdicts]) -> str:
    """Who takes the made picture for the target."""
    return "; ".join(_fooled(name, verdict) for name, verdict in verdicts.items())


def _fooled(name: str, said: Verdicts) -> str:
    if said.source == said.target:
        return f"{name} says “{said.source}” of both images, so it cannot be fooled here"
    if said.is_fooled:
        return f"{name} is fooled: it says “{said.made}” of the made picture, as of the target"
    whose = ", as of the source" if said.made == said.source else ", which is neither the source nor the target"
    return f"{name} is not fooled: it says “{said.made}”{whose}"


def rates(pairs: Mapping[str, Sequence[Verdicts]]) -> str:
    """How often each run was fooled, of the pairs whose images it tells apart."""
    clauses = []
    for name, verdicts in pairs.items():
        apart = [said for said in verdicts if said.source != said.target]
        fools = sum(said.is_fooled for said in apart)
        if apart:
            clauses.append(f"{name} is fooled by {fools} of {len(apart)} pairs that it tells apart")
    return listed(clauses)


def sentence(parts: Sequence[str]) -> str:
    """Clauses as one sentence. A run's name at its beginning stays as it is."""
    text = "; ".join(part for part in parts if part)
    return f"{text}." if text else ""


def listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _ranked(quantity: Quantity, values: Values) -> list[str]:
    """The best first; equal ones in the page's order."""
    return sorted(values, key=lambda name: -values[name] if quantity.higher_is_better else values[name])


def _by_name(quantity: Quantity, values: Values, names: Sequence[str]) -> str:
    return listed([f"{quantity.show(values[name])} ({name})" for name in names])
