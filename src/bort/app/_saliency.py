"""Saliency maps, and the images and curves of deletion and insertion by them."""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import torch
from torch import Tensor, nn

from bort import explain, measure
from bort._defaults import DELETION_STEPS, OVERLAY_STRENGTH, SALIENT_CHANNELS, SAT_THRESHOLD
from bort.app._cache import Cache
from bort.app._exceptions import Unknown
from bort.pictures import Picture, normalised, overlay, picture
from bort.subject import Subject

if TYPE_CHECKING:
    from bort.app._explorer import Explorer

T = TypeVar("T")

MOST_TRACKED: Final = 256
"""The largest k of SAT: the signals of so many channels are kept, so that its sliders need no new pass."""


class SaliencyMaps:
    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._lock = explorer.lock
        self._fast_maps = Cache(self._lock, size=64)
        self._tracked = Cache(self._lock, size=4)  # each holds a signal for each of up to MOST_TRACKED channels
        # More than the queue remembers: the map of a calculation that it calls done is still here.
        self._slow_maps = Cache(self._lock, size=256)
        self._curves = Cache(self._lock, size=64)
        self.seconds: dict[tuple[str, str], float] = {}
        """By run and method: the shortest time that a map or its curve took, those of slow methods left out."""
        self._copies: dict[str, nn.Module] = {}

    def map(
        self,
        run: str,
        image: str,
        method: str,
        target: int | None = None,
        k: int | None = None,
        threshold: float | None = None,
        options: Mapping[str, bool | int | float] | None = None,
        progress: explain.Progress | None = None,
    ) -> Tensor:
        """(H, W). SAT's k and threshold need no new pass; ``options`` are other methods'. A slow method is computed where
        ``progress`` is given, which the queue does; elsewhere its map must have been computed before."""
        if method not in explain.names():
            raise Unknown(f"There is no method {method!r}.")
        x = self._explorer.image(run, image)
        if method == "sat":
            tracked = self._tracked((run, image), lambda: self._timed(run, method, lambda: self._track(run, x)))
            count = min(SALIENT_CHANNELS, tracked.values.shape[1]) if k is None else k
            return tracked.map(count, SAT_THRESHOLD if threshold is None else threshold)[0]
        given = dict(options or {})
        key = (run, image, method, target, tuple(sorted(given.items())))
        function = explain.get(method)
        if not function.slow:
            model = self._explorer.subject(run).model
            compute = lambda: _first(function(model, x, target, **given))  # noqa: E731
            return self._fast_maps(key, lambda: self._timed(run, method, compute))
        computed: Tensor | None = self._slow_maps.get(key)
        if computed is not None:
            return computed
        if progress is None:
            raise Unknown(f"{method} has not been computed for this image yet: start it first.")
        reporting = {"progress": progress} if "progress" in function.options else {}
        saliency = _first(function(self._copy(run), x, target, **given, **reporting))
        self._slow_maps.put(key, saliency)
        return saliency

    def _timed(self, run: str, method: str, compute: Callable[[], T]) -> T:
        started = time.monotonic()
        result = compute()
        seconds = time.monotonic() - started
        self.seconds[run, method] = min(seconds, self.seconds.get((run, method), math.inf))
        return result

    def _track(self, run: str, x: Tensor) -> explain.Tracked:
        top = self._explorer.top(run)
        k = min(MOST_TRACKED, self._explorer.channel_count(run, top))
        return explain.track(self._explorer.subject(run).model, x, layer=top, k=k)

    def overlay(
        self, run: str, image: str, saliency: Tensor, strength: float = OVERLAY_STRENGTH, *, signed: bool = False
    ) -> Picture:
        """The map over the image."""
        pixels = self._explorer.view(run).pixels(self._explorer.image(run, image))[0]
        return overlay(pixels, saliency, strength, signed=signed)

    def difference(self, image: str, maps: dict[str, Tensor], strength: float, *, signed: bool) -> Picture:
        """The first run's map less the last one's over the image, each brought to the range in which it is shown."""
        (first, one), *_, (_, other) = maps.items()
        if one.shape != other.shape:
            sizes = " and ".join(f"{run} {'×'.join(map(str, own.shape))}" for run, own in maps.items())
            raise ValueError(f"Maps of different sizes have no difference: {sizes}.")
        pixels = self._explorer.view(first).pixels(self._explorer.image(first, image))[0]
        less = normalised(one, signed=signed) - normalised(other, signed=signed)
        return overlay(pixels, less, strength, signed=True, scale=1.0)

    def curve(self, run: str, image: str, saliency: Tensor, target: int | None = None) -> dict[str, Any]:
        """Deletion and insertion by all scores. The relative one is None at every step if the clean logit is too small; the
        page says so."""
        subject, x = self._explorer.subject(run), self._explorer.image(run, image)
        content = hashlib.sha256(saliency.cpu().numpy().tobytes()).digest()
        curves: dict[str, Any] = self._curves(
            (run, image, target, content), lambda: _curve(subject, x, saliency, target)
        )
        return curves

    def step(
        self, run: str, image: str, saliency: Tensor, step: int, which: Literal["deletion", "insertion"]
    ) -> Picture:
        """The image at a step of deletion or insertion; its scores are in the curve."""
        if not 0 <= step <= DELETION_STEPS:
            raise Unknown(f"There are steps 0 to {DELETION_STEPS}, not {step}.")
        model, x = self._explorer.subject(run).model, self._explorer.image(run, image)
        at = measure.at_step(model, x, saliency[None], step, steps=DELETION_STEPS, which=which)
        return picture(self._explorer.view(run).pixels(at.images)[0])

    def _copy(self, run: str) -> nn.Module:
        """The queue's own network: hooks that pages' questions put on the other one would be met by the queue's passes."""
        with self._lock:
            if run not in self._copies:
                self._copies[run] = copy.deepcopy(self._explorer.subject(run).model)
            return self._copies[run]


def _curve(subject: Subject, x: Tensor, saliency: Tensor, target: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"steps": DELETION_STEPS, "multi_label": subject.multi_label, "warn": False}
    scores = measure.all_scores(subject.model, x, saliency[None], target, **options)
    return {
        score: {
            "deletion": _numbers(both.deletion_curves[0].tolist()),
            "insertion": _numbers(both.insertion_curves[0].tolist()),
            "areas": _numbers(both.means),
        }
        for score, both in scores.items()
    }


def _numbers(values: Iterable[float]) -> list[float | None]:
    """For JSON, which has no nan."""
    return [None if math.isnan(value) else value for value in values]


def _first(maps: Tensor) -> Tensor:
    """Of one image; from another package's method it may not even be a tensor."""
    return torch.as_tensor(maps).detach()[0]
