"""Saliency methods side by side: the maps of each, how long they took, and deletion and insertion by every score."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor, nn

from bort import _html, explain
from bort._defaults import DELETION_STEPS
from bort._inspect import Progress, Target, check_images, classes_of
from bort._table import table
from bort.measure._curves import curves, image_with_words
from bort.measure._deletion import DeletionInsertion, all_scores
from bort.measure._relative import about_undefined
from bort.measure._scores import SCORES, Score
from bort.measure._substrate import Substrate

AREA_TITLES: Final = tuple(f"{score} {end}" for score in SCORES for end in ("del. ↓", "ins. ↑"))
"""The headers of :attr:`Evaluation.areas` in a table."""


@dataclass(frozen=True)
class Evaluation:
    """One method on a batch of images.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> evaluation = measure.evaluate(model, x, ["cam"], warn=False)["cam"]
        >>> evaluation.method, evaluation.constant, len(evaluation.areas)
        ('cam', 0, 6)
    """

    method: str
    maps: Tensor = field(repr=False)
    """(N, H, W)"""
    scores: dict[Score, DeletionInsertion]
    seconds: float
    """For the maps, not for deletion and insertion."""

    @property
    def constant(self) -> int:
        """How many of the maps are the same number everywhere."""
        return int(explain.constant(self.maps).sum())

    @property
    def areas(self) -> list[str]:
        """The mean areas by all scores, as cells of a table under AREA_TITLES."""
        means = [mean for score in SCORES for mean in self.scores[score].means]
        return ["–" if math.isnan(mean) else f"{mean:.3f}" for mean in means]

    def _repr_html_(self) -> str:
        return Evaluations({self.method: self})._repr_html_()


class Evaluations(dict[str, Evaluation]):
    """Evaluations by method: a plain dict that shows itself as a table, and in a notebook with its curves.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> print(measure.evaluate(model, x, ["cam"], warn=False))
        method  probability del. ↓  probability ins. ↑  ...
    """

    def __str__(self) -> str:
        return table(("method", *AREA_TITLES), self._rows(), right=range(1, 1 + len(AREA_TITLES)))

    __repr__ = __str__  # a dict's own would print every curve

    def _repr_html_(self) -> str:
        if not self:
            return _html.notebook(_html.paragraphs(["No method was evaluated."]))
        numbers = range(1, 1 + len(AREA_TITLES))
        areas = _html.table(("method", *AREA_TITLES), self._rows(), "Mean areas under the curves", numbers=numbers)
        figure = image_with_words(curves({"": self}), ", ".join(self))
        return _html.notebook(areas, figure, _html.paragraphs(notes(self)))

    def _rows(self) -> list[tuple[str, ...]]:
        return [(name, *evaluation.areas) for name, evaluation in self.items()]


def evaluate(
    model: nn.Module,
    x: Tensor,
    methods: Iterable[str] | None = None,
    target: Target = None,
    *,
    steps: int = DELETION_STEPS,
    substrates: tuple[Substrate, Substrate] = ("zero", "zero"),
    options: dict[str, dict[str, object]] | None = None,
    multi_label: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
    warn: bool = True,
) -> Evaluations:
    """Deletion and insertion (paper, tab:insertion_deletion) of saliency methods, by the names they are registered under.

    Args:
        model, x: any classifier and a batch of images.
        methods: names; all of `bort.explain.names()` by default.
        target: the class that is explained and followed; the predicted one of each image by default.
        steps, substrates: see :func:`deletion_insertion`.
        options: for single methods, by their names: ``{"rise": {"masks": 500}}``.
        multi_label: see :func:`deletion_insertion`; also given to methods that have such an option.
        progress: called with (method, done, total) by methods that have an option "progress".
        warn: of what :func:`notes` says of the result.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> result = measure.evaluate(model, x, ["cam", "ig"], warn=False)
        >>> result["cam"].maps.shape, list(result["ig"].scores)
        (torch.Size([2, 28, 28]), ['probability', 'logit', 'relative'])
    """
    chosen = {name: explain.get(name) for name in (explain.names() if methods is None else methods)}
    unknown = sorted(set(options or {}) - set(chosen))
    if unknown:
        raise ValueError(f"options for {unknown[0]!r}, which is not among the methods {', '.join(chosen)}")
    check_images(model, x)
    classes = classes_of(model, x, target)
    evaluations = Evaluations()
    for name, method in chosen.items():
        keywords = dict((options or {}).get(name, {}))
        if multi_label and "multi_label" in method.options:
            keywords.setdefault("multi_label", True)
        if progress is not None and "progress" in method.options:
            keywords["progress"] = _named(progress, name)
        _synchronize(x)
        start = time.perf_counter()
        maps = torch.as_tensor(method(model, x, classes, **keywords)).detach()
        _synchronize(x)
        seconds = time.perf_counter() - start
        scores = all_scores(
            model, x, maps, classes, steps=steps, substrates=substrates, multi_label=multi_label, warn=False
        )
        evaluations[name] = Evaluation(name, maps, scores, seconds)
    if warn:
        for note in notes(evaluations):
            warnings.warn(note, stacklevel=2)
    return evaluations


def notes(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Sentences about the images of a batch that an evaluation could not measure: those without a relative score, and, for
    each method, those whose map is constant.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(1, 1, 28, 28)
        >>> _ = nn.init.zeros_(model.head.weight), nn.init.ones_(model.head.bias)  # a last layer that ignores the image
        >>> measure.notes(measure.evaluate(model, x, ["ig"], warn=False))
        ["The map of ig is the same number everywhere for 1 of 1 image and explains nothing: ..."]
    """
    sentences = []
    for evaluation in list(evaluations.values())[:1]:  # whether there is a relative score does not depend on the map
        total = len(evaluation.maps)
        undefined = total - evaluation.scores["relative"].counted
        if undefined:
            sentences.append(f"{about_undefined(undefined, total)}.")
    return [*sentences, *explain.about_constant({name: e.maps for name, e in evaluations.items()})]


def _synchronize(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _named(progress: Callable[[str, int, int], None], name: str) -> Progress:
    return lambda done, total: progress(name, done, total)
