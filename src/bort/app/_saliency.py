"""Which pixels count: saliency maps, and the images and curves of deletion and insertion."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import torch
from torch import Tensor, nn

from bort import explain, measure
from bort.app._cache import Kept, Unknown
from bort.explain._common import Progress
from bort.measure._deletion import _ranks
from bort.pictures import Picture, overlay, picture

if TYPE_CHECKING:
    from bort.app._explorer import Explorer

Slow = Literal["guided-ig", "rise", "xrai"]
"""Methods that go through the queue."""
SLOW: Final[tuple[str, ...]] = get_args(Slow)
MOST_TRACKED: Final = 256
"""SAT's k at most: so many signals are kept for its sliders."""
STEPS: Final = 28


class Evidence:
    def __init__(self, explorer: Explorer) -> None:
        self._explorer, self._turn = explorer, explorer.turn
        self._kept = Kept(self._turn, most=64)
        self._tracked = Kept(self._turn, most=4)  # a signal for each of many channels
        # More than the queue remembers of its jobs: what is called done there is still here.
        self._slow = Kept(self._turn, most=256)
        self._models: dict[str, nn.Module] = {}

    def saliency(
        self,
        run: str,
        image: str,
        method: str,
        target: int | None,
        k: int | None = None,
        threshold: float | None = None,
        progress: Progress | None = None,
    ) -> Tensor:
        """(H, W). SAT's k and threshold need no new pass; a slow method is computed on a network of the queue's own."""
        if method not in explain.names():
            raise Unknown(f"There is no method {method!r}.")
        x = self._explorer.image(run, image)
        if method == "sat":
            tracked = self._tracked((run, image), lambda: self._track(run, x))
            count = min(64, tracked.values.shape[1]) if k is None else k
            return tracked.map(count, 0.2 if threshold is None else threshold)[0]
        key = (run, image, method, target)
        if method not in SLOW:
            model = self._explorer.subject(run).model
            return self._kept(key, lambda: explain.get(method)(model, x, target)[0])
        kept: Tensor | None = self._slow.get(key)
        if kept is not None:
            return kept
        if progress is None:
            raise Unknown(f"{method} has not been computed for this image yet: start it first.")
        made = explain.get(method)(self._model_of_the_queue(run), x, target, progress=progress)[0]
        self._slow.put(key, made)
        return made

    def _track(self, run: str, x: Tensor) -> explain.Tracked:
        top = self._explorer.top(run)
        most = min(MOST_TRACKED, self._explorer.channels_of(run, top))
        return explain.track(self._explorer.subject(run).model, x, layer=top, k=most)

    def overlay(self, run: str, image: str, saliency: Tensor, strength: float) -> Picture:
        view = self._explorer.subject(run).view
        return overlay(view.pixels(self._explorer.image(run, image))[0], saliency, strength)

    def curve(self, run: str, image: str, saliency: Tensor, target: int | None) -> dict[str, Any]:
        """Deletion and insertion by all scores."""
        model, x = self._explorer.subject(run).model, self._explorer.image(run, image)
        with self._turn:
            found = measure.all_scores(model, x, saliency[None], target, steps=STEPS)
        return {
            score: {
                "deletion": each.deletion_curves[0].tolist(),
                "insertion": each.insertion_curves[0].tolist(),
                "areas": each.means,
            }
            for score, each in found.items()
        }

    def step(
        self, run: str, image: str, saliency: Tensor, step: int, which: Literal["deletion", "insertion"]
    ) -> Picture:
        """The image at a step of deletion or insertion; its scores are in the curve."""
        subject, x = self._explorer.subject(run), self._explorer.image(run, image)
        if not 0 <= step <= STEPS:
            raise Unknown(f"There are steps 0 to {STEPS}, not {step}.")
        rank, count = _ranks(saliency[None].to(x.device)), round(step * saliency.numel() / STEPS)
        gone = (rank < count) if which == "deletion" else (rank >= count)
        mixed = torch.where(gone[:, None], torch.zeros_like(x), x)
        return picture(subject.view.pixels(mixed)[0])

    def _model_of_the_queue(self, run: str) -> nn.Module:
        """A copy: hooks that the page's calls put on a network would be met by the queue's passes."""
        with self._turn:
            if run not in self._models:
                self._models[run] = copy.deepcopy(self._explorer.subject(run).model)
            return self._models[run]
