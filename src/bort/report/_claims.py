"""The paper's claims, as far as two networks and some test images can decide them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

import torch
from torch import Tensor

from bort import _intervals
from bort._intervals import Interval
from bort.measure import LayerAudit
from bort.report._areas import compare_areas, gaps
from bort.report._measured import Measured, shared_methods
from bort.report._paper import in_paper
from bort.report._verdict import Comparison, Estimate, Outcome, outcome_of
from bort.report._words import number, part_in_percent, plural, span
from bort.subject import Missing


class Claim(Protocol):
    """`estimate` raises Missing where nothing can be measured; `compare` gives None where two subjects share nothing."""

    @property
    def claim(self) -> str: ...
    @property
    def measure(self) -> str: ...
    @property
    def paper(self) -> str: ...
    def estimate(self, subject: Measured) -> Estimate: ...
    def compare(self, base: Measured, other: Measured) -> Comparison | None: ...


@dataclass(frozen=True)
class OverImages:
    """A mean over images, or a part of them. Two subjects are compared image by image: the larger the better."""

    claim: str
    measure: str
    paper: str
    sample: Callable[[Measured], Tensor]
    """(N,): a number an image, nan where there is none; 1 or 0 if ``is_part``."""
    of: str = "image"
    is_part: bool = False
    margin: float = 0.0
    """By how much the other's value may be smaller."""
    least: float | None = None
    """In place of a comparison: the other's own value has to be larger than this."""

    def estimate(self, subject: Measured) -> Estimate:
        values = _finite(self.sample(subject))
        if not len(values):
            raise Missing(f"{self.measure}: there is no {self.of} of which it can be measured")
        value, interval = values.mean().item(), self._interval(values)
        lines = [span(interval, percent=self.is_part)] if interval else []
        shown = part_in_percent(value) if self.is_part else number(value)
        return Estimate(value, interval, len(values), shown, (*lines, f"n = {plural(len(values), self.of)}"))

    def compare(self, base: Measured, other: Measured) -> Comparison | None:
        return self._compare(base, other, self.sample(base), self.sample(other))

    def _compare(self, base: Measured, other: Measured, before: Tensor, after: Tensor) -> Comparison | None:
        if len(before) != len(after):
            return None
        both = before.isfinite() & after.isfinite()
        before, after = before[both], after[both]
        if not len(before):
            return None
        if self.is_part:
            interval: Interval | None = _intervals.difference_of_parts(before.bool(), after.bool())
        else:
            interval = _intervals.mean(after - before)
        difference = (after - before).mean().item()
        if self.least is None:
            outcome = outcome_of(interval, -self.margin)
        else:
            outcome = outcome_of(self.estimate(other).interval, self.least)
        shown = f"{100 * difference:+.1f} points" if self.is_part else f"{difference:+.2f}"
        ends = f" ({span(interval, percent=self.is_part, signed=True)})" if interval else ""
        details = (f"{shown}{ends}".replace("-", "−"), f"n = {plural(len(before), self.of)}, paired")
        return Comparison(other.name, base.name, difference, interval, len(before), outcome, details)

    def _interval(self, values: Tensor) -> Interval | None:
        return _intervals.part(values.sum().item(), len(values)) if self.is_part else _intervals.mean(values)


@dataclass(frozen=True)
class OverMethods(OverImages):
    """Deletion and insertion of all methods: the claim is that most of them are better."""

    def compare(self, base: Measured, other: Measured) -> Comparison | None:
        methods = shared_methods([base, other])
        compared = self._compare(base, other, gaps(base, methods), gaps(other, methods))
        if compared is None:
            return None
        areas = compare_areas(base, other)
        better, worse = (sum(area.is_better is wanted for area in areas) for wanted in (True, False))
        outcome: Outcome = (
            "held" if 2 * better > len(areas) else "did not hold" if 2 * worse > len(areas) else "not decided"
        )
        words = f"better in {better} of {len(areas)}, worse in {worse}"
        return replace(compared, outcome=outcome, details=(words, *compared.details))


@dataclass(frozen=True)
class OverLayers:
    """A number a layer, the smaller the better. It is no sample, so what is decided is in how many layers it is smaller."""

    claim: str
    measure: str
    paper: str
    values: Callable[[Measured], dict[str, float]]
    middle: Callable[[list[float]], float]
    images: Callable[[Measured], int] | None = None
    """How many it was measured on, if it was on images."""

    def estimate(self, subject: Measured) -> Estimate:
        values = [value for value in self.values(subject).values() if math.isfinite(value)]
        if not values:
            raise Missing(f"{subject.name} has no layers of which it can be measured")
        value = self.middle(values)
        n = plural(len(values), "layer") + ("" if self.images is None else f", {plural(self.images(subject), 'image')}")
        ends = f"from {number(min(values))} to {number(max(values))}"
        return Estimate(value, None, len(values), number(value), (ends, f"n = {n}"))

    def compare(self, base: Measured, other: Measured) -> Comparison | None:
        before, after = self.values(base), self.values(other)
        shared = [name for name in before if name in after and math.isfinite(before[name] + after[name])]
        if not shared:
            return None
        smaller = sum(after[name] < before[name] for name in shared)
        interval = _intervals.part(smaller, len(shared))
        difference = self.middle([after[name] for name in shared]) - self.middle([before[name] for name in shared])
        details = (f"smaller in {smaller} of {plural(len(shared), 'layer')}", f"that is {span(interval, percent=True)}")
        outcome = outcome_of(interval, 0.5)
        return Comparison(other.name, base.name, difference, interval, len(shared), outcome, details)


def _finite(values: Tensor) -> Tensor:
    return values[values.isfinite()]


def _answers(subject: Measured) -> Tensor:
    answers = subject.answers.double()
    return answers.where(answers >= 0, torch.nan)


def _fooled(subject: Measured) -> Tensor:
    """1 for an adversary that is taken for its target; nan for a pair that the network does not tell apart."""
    made = subject.adversaries(subject.first.pairs)
    fooled = (made.image_verdicts == made.target_classes).double()
    return fooled.where(made.source_classes != made.target_classes, torch.nan).cpu()


def _residuals(subject: Measured) -> dict[str, float]:
    training = subject.subject.training
    scale = training.scale if training is not None and training.constraint else 1.0
    return {layer.name: residual_to(layer, scale) for layer in subject.audit}


def residual_to(layer: LayerAudit, scale: float) -> float:
    """The root mean square of σ²/s − 1. An audit has it for s = 1, and the mean of σ², from which that of σ⁴ follows."""
    fourth = layer.residual**2 + 2 * layer.gram_diagonal - 1
    return math.sqrt(max(0.0, fourth - 2 * scale * layer.gram_diagonal + scale**2)) / scale


def _ratios(subject: Measured) -> dict[str, float]:
    ratios = {layer.name: layer.ratio for layer in subject.audit if layer.ratio is not None}
    if not ratios and len(subject.audit):
        raise Missing("reconstruction ratios need test images")
    return ratios


CLAIMS: Final[tuple[Claim, ...]] = (
    OverImages(
        "Accuracy is not lost, or by less than a point",
        "accuracy: test images whose class is predicted",
        in_paper("tab:mnist_cifar10"),
        _answers,
        is_part=True,
        margin=0.01,
    ),
    OverLayers(
        "Layers are nearer to orthogonality",
        "distance to WᵀW = I, median over the layers",
        in_paper("fig:1_2_model_dist"),
        _residuals,
        statistics.median,
    ),
    OverLayers(
        "Layers lose less of their input",
        "reconstruction ratio, mean over the layers",
        in_paper("fig:1_3_recon_ratio"),
        _ratios,
        statistics.fmean,
        lambda subject: len(subject.images(subject.sizes.measured)),
    ),
    OverImages(
        "Reconstructions from the top map look more like the image",
        "correlation with the image of what is traced back from the top map",
        in_paper("fig:2_1_recon"),
        lambda subject: subject.reconstructions().correlations,
    ),
    OverImages(
        "… and those from its most salient features alone",
        "the same, from the most salient features",
        in_paper("fig:3_1_topk64_recon"),
        lambda subject: subject.reconstructions(subject.features).correlations,
    ),
    OverMethods(
        "Saliency maps find the pixels that matter better, by most methods",
        "insertion less deletion, mean over the saliency methods",
        in_paper("tab:insertion_deletion"),
        lambda subject: gaps(subject, subject.methods),
    ),
    OverImages(
        "… and by SAT",
        "insertion less deletion by SAT",
        in_paper("tab:insertion_deletion"),
        lambda subject: gaps(subject, ["sat"]),
    ),
    OverImages(
        "Transplanted features fool the classifier, more often than not",
        "adversaries that are taken for their target",
        in_paper("fig:3_3_adversary"),
        _fooled,
        of="pair",
        is_part=True,
        least=0.5,
    ),
)
