r"""Deletion and insertion (Petsiuk et al. 2018; paper, tab:insertion_deletion).

Pixels are ranked by a saliency map. Deletion replaces them in the image, most salient first; insertion puts them into an
empty image. The score of the class is followed over n + 1 images, both ends included, and the area under it is the mean
height of the curve by the trapezoid rule. A good map makes deletion fall early and insertion rise early.

There are three scores. "probability" is that of RISE's authors (a sigmoid if there is a single logit). "logit" is what the
classifier computes. "relative" is the logit divided by that of the clean image: the only one that fits the paper's table,
which has areas below 0 and none above 1. It has a meaning if the clean image's logit is well above 0, as it usually is for
the predicted class; other images have nan in its curves and areas and do not count in its means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from bort._defaults import DELETION_STEPS
from bort._inspect import (
    Progress,
    ScoreFunction,
    Target,
    check_images,
    classes_of,
    evaluating,
    finite,
    images_at_once,
    outputs_of,
    widened,
)
from bort.measure._curves import result_in_notebook
from bort.measure._relative import divisors_of, warn_of_undefined
from bort.measure._scores import SCORES, Score, check_score, scores_of
from bort.measure._substrate import Substrate, substrate


@dataclass(frozen=True)
class DeletionInsertion:
    """Curves (N, steps + 1) and their areas (N,), for each image.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> result = measure.deletion_insertion(model, x, measure.random_map(x), score="probability")
        >>> result.deletion_curves.shape, result.counted
        (torch.Size([2, 29]), 2)
    """

    deletion_curves: Tensor = field(repr=False)
    insertion_curves: Tensor = field(repr=False)
    deletion: Tensor
    insertion: Tensor
    score: Score | ScoreFunction
    substrates: tuple[Substrate, Substrate]
    """Where deletion ends, and where insertion starts."""

    @property
    def counted(self) -> int:
        """How many images have areas. The relative score of an image whose clean logit is near 0 or negative is nan."""
        return int(self._has_areas.sum())

    @property
    def means(self) -> tuple[float, float]:
        """Mean areas of deletion (smaller is better) and insertion (larger is better), over the images that have one; nan if
        none has."""
        deletion, insertion = (
            areas[self._has_areas].double().mean().item() for areas in (self.deletion, self.insertion)
        )
        return deletion, insertion

    def _repr_html_(self) -> str:
        return result_in_notebook(self)

    @property
    def _has_areas(self) -> Tensor:
        return ~(self.deletion.isnan() | self.insertion.isnan())


def deletion_insertion(
    model: nn.Module,
    x: Tensor,
    saliency: Tensor,
    target: Target = None,
    *,
    steps: int = DELETION_STEPS,
    score: Score | ScoreFunction = "relative",
    deletion_to: Substrate = "zero",
    insertion_from: Substrate = "zero",
    multi_label: bool = False,
    progress: Progress | None = None,
) -> DeletionInsertion:
    """How fast the score of a class falls and rises with the most salient pixels.

    Args:
        model, x: any classifier and a batch of images (N, C, H, W).
        saliency: (N, H, W), from any method. Of equal values the earlier pixel comes first, row by row: SAT's and XRAI's maps
            have many ties.
        target: the class; the one predicted for the clean image by default.
        steps: how many times pixels change, each time about the same number.
        score: "probability", "logit" or "relative". The relative score is nan, with a warning, for images whose clean logit
            is 0, negative, or at most 5% of its scale: the spread of the image's logits, or how far the logit moves until all
            pixels are deleted, whichever is larger. Or a function of logits (N, classes) and classes (N,) that returns (N,)
            scores.
        deletion_to, insertion_from: "zero" (the mean colour of normalised images), "mean" (each image's own mean colour), or
            "blur" (11 × 11 Gaussian of deviation 5, which RISE's authors use for insertion).
        multi_label: whether an image may have several classes: probabilities are then sigmoids of the single logits.
        progress: called after each chunk of images.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
        >>> _ = model[1].weight.data.copy_(torch.tensor([[4.0, 3.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]]))
        >>> x = torch.ones(1, 1, 2, 2)  # the logit of class 0 is 4 + 3 + 2 + 1
        >>> right = torch.tensor([[[4.0, 3.0], [2.0, 1.0]]])
        >>> result = measure.deletion_insertion(model, x, right, steps=4)
        >>> result.deletion_curves * 10  # without the most salient pixel 6 of 10 are left
        tensor([[10.,  6.,  3.,  1.,  0.]])
        >>> measure.deletion_insertion(model, x, -right, steps=4).means[0] > result.means[0]  # a wrong map falls later
        True
    """
    check_score(score)
    substrates: tuple[Substrate, Substrate] = (deletion_to, insertion_from)
    return _measure(model, x, saliency, target, (score,), steps, substrates, multi_label, progress, warn=True)[score]


def all_scores(
    model: nn.Module,
    x: Tensor,
    saliency: Tensor,
    target: Target = None,
    *,
    steps: int = DELETION_STEPS,
    substrates: tuple[Substrate, Substrate] = ("zero", "zero"),
    multi_label: bool = False,
    progress: Progress | None = None,
    warn: bool = True,
) -> dict[Score, DeletionInsertion]:
    """:func:`deletion_insertion` with each of the scores, all out of the same passes through the model. ``warn``: if some
    images have no relative score; without it look at ``counted``.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> list(measure.all_scores(model, x, measure.random_map(x), warn=False))
        ['probability', 'logit', 'relative']
    """
    results = _measure(model, x, saliency, target, SCORES, steps, substrates, multi_label, progress, warn=warn)
    return {score: results[score] for score in SCORES}


@torch.no_grad()
def _measure(
    model: nn.Module,
    x: Tensor,
    saliency: Tensor,
    target: Target,
    scores: Sequence[Score | ScoreFunction],
    steps: int,
    substrates: tuple[Substrate, Substrate],
    multi_label: bool,
    progress: Progress | None,
    *,
    warn: bool,
) -> dict[Score | ScoreFunction, DeletionInsertion]:
    saliency = _check(model, x, saliency, steps)
    classes = classes_of(model, x, target)
    at_once = images_at_once(model, x)
    chunk = max(1, at_once // (steps + 1))
    curves: dict[Score | ScoreFunction, tuple[list[Tensor], list[Tensor]]] = {score: ([], []) for score in scores}
    with evaluating(model):
        for start in range(0, len(x), chunk):
            part = slice(start, start + chunk)
            images, targets = x[part], classes[part]
            ranks = _ranks(saliency[part].to(x.device))
            clean = widened(outputs_of(model, images))
            ends = ((images, substrate(images, substrates[0])), (substrate(images, substrates[1]), images))
            for which, (begin, end) in enumerate(ends):
                logits = _logits_between(model, begin, end, ranks, steps, at_once)
                if which == 0:
                    divisors = divisors_of(clean, logits[:, -1], targets)
                for score in scores:
                    curves[score][which].append(scores_of(logits, targets, divisors, score, multi_label))
            if progress is not None:
                progress(min(len(x), start + chunk), len(x))
    results: dict[Score | ScoreFunction, DeletionInsertion] = {}
    for score, (deletions, insertions) in curves.items():
        deletion, insertion = torch.cat(deletions), torch.cat(insertions)
        results[score] = DeletionInsertion(deletion, insertion, _area(deletion), _area(insertion), score, substrates)
    if warn and "relative" in results:
        warn_of_undefined(len(x) - results["relative"].counted, len(x))
    return results


@dataclass(frozen=True)
class AtStep:
    """The images at one step of deletion or insertion.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> measure.at_step(model, x, measure.random_map(x), 0).images.equal(x)  # at the beginning nothing is missing
        True
    """

    images: Tensor
    """(N, C, H, W)"""
    _compute_scores: Callable[[], Tensor] = field(repr=False)

    @cached_property
    def scores(self) -> Tensor:
        """(N,): the height of each image's curve at this step. Computed when it is first asked for."""
        return self._compute_scores()


def at_step(
    model: nn.Module,
    x: Tensor,
    saliency: Tensor,
    step: int,
    *,
    steps: int = DELETION_STEPS,
    which: Literal["deletion", "insertion"] = "deletion",
    target: Target = None,
    score: Score | ScoreFunction = "relative",
    substrates: tuple[Substrate, Substrate] = ("zero", "zero"),
    multi_label: bool = False,
) -> AtStep:
    """What :func:`deletion_insertion` shows the model after ``step`` of its ``steps``. The images need no pass through the
    model.

    Args:
        model, x, saliency, target, steps, score, multi_label: see :func:`deletion_insertion`.
        step: 0 (nothing has changed) to ``steps`` (every pixel has).
        which: "deletion" or "insertion".
        substrates: where deletion ends, and where insertion starts.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
        >>> _ = model[1].weight.data.copy_(torch.tensor([[4.0, 3.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]]))
        >>> x = torch.ones(1, 1, 2, 2)  # the logit of class 0 is 4 + 3 + 2 + 1
        >>> halfway = measure.at_step(model, x, torch.tensor([[[4.0, 3.0], [2.0, 1.0]]]), 2, steps=4, score="logit")
        >>> halfway.images, halfway.scores
        (tensor([[[[0., 0.],
                  [1., 1.]]]]), tensor([3.]))
    """
    saliency = _check(model, x, saliency, steps)
    check_score(score)
    if not 0 <= step <= steps:
        raise ValueError(f"step={step}: choose from 0 to {steps}")
    if which not in ("deletion", "insertion"):
        raise ValueError(f'which={which!r}: choose "deletion" or "insertion"')
    begin, end = (x, substrate(x, substrates[0])) if which == "deletion" else (substrate(x, substrates[1]), x)
    ranks = _ranks(saliency.to(x.device))
    images = _mixed(begin, end, ranks, _counts(ranks, steps)[step : step + 1])

    @torch.no_grad()
    def scores() -> Tensor:
        classes = classes_of(model, x, target)
        heights = []
        with evaluating(model):
            at_once = images_at_once(model, x)
            for clean, changed, targets in zip(*(torch.split(t, at_once) for t in (x, images, classes)), strict=True):
                logits = finite(widened(outputs_of(model, changed)), "the model's outputs")
                divisors = logits[:, :1]  # used by the relative score only
                if score == "relative":
                    deleted = widened(outputs_of(model, substrate(clean, substrates[0])))
                    divisors = divisors_of(widened(outputs_of(model, clean)), deleted, targets)
                heights.append(scores_of(logits[:, None], targets, divisors, score, multi_label)[:, 0])
        together = torch.cat(heights)
        if score == "relative":
            warn_of_undefined(int(together.isnan().sum()), len(x))
        return together

    return AtStep(images, scores)


def _check(model: nn.Module, x: Tensor, saliency: Tensor, steps: int) -> Tensor:
    """The saliency as a tensor, if everything fits together."""
    check_images(model, x)
    saliency = torch.as_tensor(saliency)
    if saliency.shape != (len(x), *x.shape[-2:]):
        raise ValueError(
            f"saliency of shape {tuple(saliency.shape)}: for these images it must be {(len(x), *x.shape[-2:])}"
        )
    if not torch.isfinite(saliency).all():
        raise ValueError("the saliency has NaN or Inf in it")
    pixels = x.shape[-2] * x.shape[-1]
    if not 1 <= steps <= pixels:
        raise ValueError(f"steps={steps}: choose from 1 to {pixels}, the number of pixels")
    return saliency


def _ranks(saliency: Tensor) -> Tensor:
    """(N, H, W): 0 for the most salient pixel. Stable: ties go in reading order."""
    order = saliency.flatten(1).argsort(dim=1, descending=True, stable=True)
    places = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places).view(saliency.shape)


def _counts(ranks: Tensor, steps: int) -> Tensor:
    """(steps + 1,): how many pixels have changed after each step."""
    return torch.linspace(0, ranks[0].numel(), steps + 1, device=ranks.device).round().long()


def _mixed(begin: Tensor, end: Tensor, ranks: Tensor, counts: Tensor) -> Tensor:
    """(N · counts, C, H, W): begin with the first pixels of end, once for each count; image by image."""
    changed = ranks[:, None] < counts[None, :, None, None]
    return torch.where(changed[:, :, None], end[:, None], begin[:, None]).flatten(0, 1)


def _logits_between(model: nn.Module, begin: Tensor, end: Tensor, ranks: Tensor, steps: int, at_once: int) -> Tensor:
    """(N, steps + 1, classes) on the way from begin to end: images and steps together, in few batches."""
    parts = torch.split(_counts(ranks, steps), max(1, at_once // len(begin)))
    logits = [
        outputs_of(model, _mixed(begin, end, ranks, counts)).view(len(begin), len(counts), -1) for counts in parts
    ]
    return finite(widened(torch.cat(logits, dim=1)), "the model's outputs without some pixels")


def _area(curves: Tensor) -> Tensor:
    return (curves[:, 1:] + curves[:, :-1]).sum(dim=1) / (2 * (curves.shape[1] - 1))
