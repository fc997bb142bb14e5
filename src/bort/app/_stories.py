"""The numbers behind each view's sentence: of the image that is shown, and of the images that a report measures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from bort import explain, invert, measure
from bort._defaults import DELETION_STEPS
from bort._sample_sizes import SampleSizes
from bort.app import _story as story
from bort.app._averages import Averages, Numbers, Part
from bort.app._exceptions import Unknown
from bort.app._find import Finder
from bort.app._page_state import PageState, RunState
from bort.app._parameters import options_of

if TYPE_CHECKING:
    from bort.app._explorer import Explorer

_ENDS = {0: story.DELETED, 1: story.INSERTED}
"""The places of deletion and insertion in a pair of areas."""
_NO_IMAGES = "There is no image to look at yet: drop one or choose a file. The audit of the layers needs none."


@dataclass(frozen=True)
class Story:
    text: str
    is_pending: bool = False
    """Whether numbers of more images will come."""


class Stories:
    """Sentences for the page's state. What is asked of many images comes from :class:`Averages`, so that no view waits."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer

    @cached_property
    def averages(self) -> Averages:
        return Averages(self._explorer.lock)

    def close(self) -> None:
        """End what is computed in the background."""
        if "averages" in vars(self):
            self.averages.close()

    def tell(self, state: PageState) -> Story:
        """Empty for views that have no sentence, and where a network cannot do what the view shows."""
        tellers: dict[str, Callable[[PageState, list[RunState]], Story]] = {
            "inside": self._inside,
            "evidence": self._evidence,
            "transplant": self._transplant,
            "find": self._find,
            "audit": self._audit,
        }
        if state.view not in tellers:
            return Story("")
        if not state.image and state.view not in ("find", "audit"):
            return Story(_NO_IMAGES)
        for image in filter(None, (state.image, state.other)):
            self._explorer.image(next(iter(self._explorer.subjects)), image)  # an unknown one is an error
        runs = [state.of_run(self._explorer, number) for number in range(len(self._explorer.subjects))]
        try:
            return tellers[state.view](state, runs)
        except (Unknown, ValueError):  # the view itself says why
            return Story("")

    # --- one of each view

    def _inside(self, state: PageState, runs: list[RunState]) -> Story:
        explorer, whole = self._explorer, state.part == "all"

        def kept(own: RunState, x: Tensor) -> float:
            k = None if whole else own.k
            back = invert.reconstruct(explorer.subject(own.run).model, x, own.layer, k, binary=state.binary)
            return invert.correlation(back, x)[0].item()

        with explorer.lock:
            started = time.monotonic()
            values = {own.run: kept(own, explorer.image(own.run, state.image)) for own in runs}
            seconds = (time.monotonic() - started) / len(runs)
        if not self.averages.allows(seconds):
            return Story(story.sentence([story.here(story.KEPT, values)]))
        images = self._images(runs, SampleSizes.measured)
        settings = [(own.run, own.layer, None if whole else (own.k, state.binary)) for own in runs]

        def kept_of(own: RunState, number: int, part: Part) -> float:
            with part():
                return kept(own, images[own.run][number : number + 1])

        numbers = self._ask(("inside", *settings), runs, kept_of, images)
        parts = [story.here(story.KEPT, values)]
        if numbers.is_done and numbers.count > 1:
            parts.append(story.over(story.KEPT, values, _by_run(numbers.values)))
        return Story(story.sentence(parts), numbers.is_open)

    def _evidence(self, state: PageState, runs: list[RunState]) -> Story:
        explorer, method = self._explorer, explain.get(state.method)
        shown: dict[str, list[float | None]] = {}
        for own in runs:
            options = _options(state, own)
            given = options if state.method == "sat" else {"options": options}
            saliency = explorer.saliency.map(own.run, state.image, state.method, state.target, **given)
            shown[own.run] = explorer.saliency.curve(own.run, state.image, saliency, state.target)[state.score]["areas"]
        undefined = [run for run, areas in shown.items() if None in areas]
        if undefined:
            return Story(
                f"There is no area of {story.listed(undefined)} here: the class's logit is too small to divide by. Choose "
                "the logit or the probability as the score."
            )
        values = [{run: areas[end] or 0.0 for run, areas in shown.items()} for end in _ENDS]
        text = story.maps(*values)
        seconds = [explorer.saliency.seconds.get((own.run, state.method), 0.0) for own in runs]
        is_slow = method.slow or not self.averages.allows(max(seconds))
        if (
            is_slow or state.target is not None
        ):  # the predicted class differs from image to image, a chosen one does not
            return Story(story.sentence([text]))
        numbers = self._areas(state, runs)
        measured = [_defined(numbers.values, state.score, end) for end in _ENDS] if numbers.is_done else []
        count = len(measured[0][runs[0].run]) if measured else 0
        if count < 2:
            return Story(story.sentence([text]), numbers.is_open)
        starts = f"over {count} images by deletion", "by insertion"
        parts = zip(_ENDS.values(), values, measured, starts, strict=True)
        return Story(story.sentence([text, ", ".join(story.over(*part) for part in parts)]))

    def _areas(self, state: PageState, runs: list[RunState]) -> Numbers:
        """Deletion and insertion by all scores, for each of the images that a report evaluates."""
        images, method = self._images(runs, SampleSizes.evaluated), explain.get(state.method)

        def areas(own: RunState, number: int, part: Part) -> dict[str, tuple[float, float]]:
            subject, x = self._explorer.subject(own.run), images[own.run][number : number + 1]
            options: dict[str, Any] = {"steps": DELETION_STEPS, "multi_label": subject.multi_label, "warn": False}
            with part():
                saliency = method(subject.model, x, None, **_options(state, own))
            with part():
                scores = measure.all_scores(subject.model, x, saliency, None, **options)
            return {str(score): both.means for score, both in scores.items()}

        settings = [(own.run, *_options(state, own).items()) for own in runs]
        return self._ask(("evidence", state.method, *settings), runs, areas, images)

    def _transplant(self, state: PageState, runs: list[RunState]) -> Story:
        explorer, verdicts = self._explorer, {}
        started = time.monotonic()
        for own in runs:
            _, said = explorer.transplant(own.run, state.image, state.other, own.layer, own.k, state.path)
            verdicts[own.run] = story.Verdicts(said["source"], said["target"], said["image"])
        if not self.averages.allows((time.monotonic() - started) / len(runs)):
            return Story(story.sentence([story.fooled(verdicts)]))
        images, pairs = self._images(runs, SampleSizes.pairs), explorer.measured_pairs()

        def verdict(own: RunState, number: int, part: Part) -> story.Verdicts:
            model = explorer.subject(own.run).model
            source, target = (images[own.run][index : index + 1] for index in pairs[number])
            with part():
                made = invert.synthesize(model, source, target, own.layer, own.k, path=state.path)
            return story.Verdicts(
                *(str(int(said)) for said in (made.source_classes, made.target_classes, made.image_verdicts))
            )

        settings = [(own.run, own.layer, own.k, state.path) for own in runs]
        numbers = self._ask(("transplant", *settings), runs, verdict, pairs)
        parts = [story.fooled(verdicts)]
        if numbers.is_done and numbers.count > 1:
            parts.append(story.rates({own.run: [of_pair[own.run] for of_pair in numbers.values] for own in runs}))
        return Story(story.sentence(parts), numbers.is_open)

    def _find(self, state: PageState, runs: list[RunState]) -> Story:
        index = self._explorer.index
        count, is_pending = index.predicted, index.state in ("waiting", "running")
        labels = {own.run: index.runs[own.run].labels[:count] for own in runs}
        known = np.all([own >= 0 for own in labels.values()], axis=0)
        if not known.any():  # nothing is known yet, or no image's class is
            return Story("", is_pending)
        right = {run: (index.runs[run].classes[:count] == own)[known].tolist() for run, own in labels.items()}
        differing = int(Finder(self._explorer).disagreeing(count).sum()) if len(runs) > 1 else 0
        return Story(story.sentence([story.found(right, differing)]), is_pending)

    def _audit(self, state: PageState, runs: list[RunState]) -> Story:
        audits = {own.run: self._explorer.audit(own.run) for own in runs}
        residuals = {run: max(layer.residual for layer in audit) for run, audit in audits.items() if len(audit)}
        if not residuals:
            return Story("There is no layer that the constraint is for.")
        parts = [story.here(story.NEARER, residuals)]
        ratios = {run: [layer.ratio for layer in audit if layer.ratio is not None] for run, audit in audits.items()}
        finite = {run: [ratio for ratio in own if math.isfinite(ratio)] for run, own in ratios.items()}
        if all(finite.values()):
            means = {run: sum(own) / len(own) for run, own in finite.items()}
            parts.append(f"{story.here(story.LOST, means)}, over {self._explorer.image_count(runs[0].run)} images")
        return Story(story.sentence(parts))

    # --- many images

    def _images(self, runs: Sequence[RunState], most: int) -> dict[str, Tensor]:
        """The first test images, as each network sees them; none if there are none."""
        return {own.run: self._explorer.measured_images(own.run, most) for own in runs}

    def _ask(
        self,
        key: tuple[Any, ...],
        runs: Sequence[RunState],
        compute: Callable[[RunState, int, Part], Any],
        of: Mapping[str, Tensor] | Sequence[Any],
    ) -> Numbers:
        """What is known by now of each run, for each of the images or pairs in ``of``."""
        count = min(len(own) for own in of.values()) if isinstance(of, Mapping) else len(of)
        return self.averages.ask(key, lambda number, part: {own.run: compute(own, number, part) for own in runs}, count)


def _options(state: PageState, own: RunState) -> dict[str, Any]:
    """Of the saliency method."""
    if state.method == "sat":
        return {"k": own.tracked, "threshold": state.threshold}
    return options_of(state.method, state.options)


def _by_run(values: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {run: [own[run] for own in values] for run in values[0]}


def _defined(
    values: Sequence[Mapping[str, Mapping[str, Sequence[float]]]], score: str, end: int
) -> dict[str, list[float]]:
    """The areas of the images that have one for every run."""
    areas = [{run: own[score][end] for run, own in of_image.items()} for of_image in values]
    complete = [own for own in areas if not any(math.isnan(area) for area in own.values())]
    return _by_run(complete) if complete else {run: [] for run in values[0]}
