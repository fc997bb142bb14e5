"""An index of the test set: what each network says of every image, computed in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import torch
from torch import Tensor

from bort import invert
from bort._inspect import class_probabilities, evaluating, finite, outputs_of
from bort.app import _index_store as store
from bort.app._exceptions import Busy, NoLayer
from bort.app._exit import seconds_left
from bort.app._index_store import RunIndex
from bort.explain import Cancelled
from bort.pictures import picture
from bort.report import Missing

if TYPE_CHECKING:
    from bort.app._explorer import Explorer

CORRELATED: Final = 512
"""Of so many test images the reconstruction from the top layer is correlated with the image: it takes a pass back."""
_LARGEST_BATCH: Final = 64
_BATCH_SECONDS: Final = 0.05  # what a page's question may have to wait
_THUMBNAILS: Final = 512  # first images whose thumbnails are kept at once
_CHECKED: Final = 8  # images of which an index that was read from a file is computed again

State = Literal["waiting", "running", "done", "failed", "closed"]
Step = Literal["predicted", "correlated"]
Compute = Callable[[str, int, Tensor, Tensor], None]
"""Fills a run's index from a number on: (run, number, images, labels)."""


class Index:
    """Of the first test images of the report's order, in batches: first what the networks predict, for all of them, then the
    correlations of the first :data:`CORRELATED`. Between batches pages' questions come first.

    Args:
        explorer: whose runs and test images these are.
        cache: the folder in which an index is kept, for each network and its images; None: in memory only.
    """

    def __init__(self, explorer: Explorer, cache: Path | None = None) -> None:
        self._explorer, self._cache = explorer, cache
        self.count = explorer.test_images.count
        self.correlated_count = min(CORRELATED, self.count)
        self.runs = {run: RunIndex.empty(self.count) for run in explorer.subjects}
        self.state: State = "waiting"
        self.message = ""
        """Why it failed."""
        self._without: dict[str, str] = {}  # runs, and why they have no correlations
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def no_correlations(self) -> str:
        """Why networks have no correlations; empty if all have."""
        return " ".join(self._without.values())

    @property
    def predicted(self) -> int:
        """How many images all networks have been asked about."""
        return min(own.predicted for own in self.runs.values())

    @property
    def correlated(self) -> int:
        return min(own.correlated for own in self.runs.values())

    def start(self, *, again: bool = False) -> None:
        """Begin in a thread of its own; if that was done before, nothing, or ``again`` after a failure."""
        with self._lock:
            if self.state == "waiting" or (again and self.state == "failed"):
                self.state, self.message = "running", ""
                self._thread = threading.Thread(target=self._work, name="bort-index", daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it ends within this time."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self.state != "running"

    def close(self) -> None:
        """End the thread after its batch."""
        self._closed.set()
        self.wait(seconds_left())

    # --- the thread

    def _work(self) -> None:
        try:
            files = self._files()
            for run, file in files.items():
                self._take_over(run, file)
            try:
                self._go("predicted", self.count, self._predict)
                self._go("correlated", self.correlated_count, self._correlate)
            finally:  # if it is closed, what is known is kept for the next time
                self._write(files)
            self.state = "done"
        except Cancelled:
            self.state = "closed"
        except Exception as error:  # the page gets a message, never a traceback
            self.state, self.message = "failed", str(error) or type(error).__name__

    def _go(self, step: Step, count: int, compute: Compute) -> None:
        """One of the two steps, for the images of which it is not known yet, in batches that take about _BATCH_SECONDS for
        each run."""
        batch = 1
        while (start := min(getattr(own, step) for own in self.runs.values())) < count:
            numbers = range(start, min(start + batch, count))
            missing = [run for run, own in self.runs.items() if getattr(own, step) < numbers.stop]
            seconds = self._batch(numbers, missing, compute)
            for run in missing:
                setattr(self.runs[run], step, numbers.stop)
            if seconds < _BATCH_SECONDS / 2:
                batch = min(2 * batch, _LARGEST_BATCH)
            elif seconds > 2 * _BATCH_SECONDS:
                batch = max(1, batch // 2)

    def _batch(self, numbers: range, runs: Sequence[str], compute: Compute) -> float:
        """The images with these numbers; how long the slowest run took. Where one of them cannot be read, each by itself."""
        try:
            inputs, labels = self._explorer.test_images.read(numbers)
        except (Missing, ValueError):
            inputs, labels = {}, {}
        if any(len(labels.get(run, ())) != len(numbers) for run in runs):
            return sum(self._batch(range(n, n + 1), runs, compute) for n in numbers) if len(numbers) > 1 else 0.0
        if numbers.stop <= _THUMBNAILS:
            self._keep_thumbnails(numbers, inputs)
        return max(self._compute(partial(compute, run, numbers.start, inputs[run], labels[run])) for run in runs)

    def _compute(self, work: Callable[[], None]) -> float:
        """Do it when nobody else computes; how long it took."""
        while True:
            self._explorer.lock.give_way(self._closed.is_set)
            try:
                with self._explorer.lock:
                    start = time.perf_counter()
                    work()
                    return time.perf_counter() - start
            except Busy:
                continue

    def _keep_thumbnails(self, numbers: range, inputs: Mapping[str, Tensor]) -> None:
        """Reading photographs again for a page of them would take seconds."""
        first, x = next(iter(inputs.items()))
        for number, pixels in zip(numbers, self._explorer.view(first).pixels(x), strict=True):
            self._explorer.thumbnails.keep(f"test-{number}", picture(pixels))

    def _predict(self, run: str, start: int, x: Tensor, labels: Tensor) -> None:
        subject, own = self._explorer.subject(run), self.runs[run]
        with torch.no_grad(), evaluating(subject.model):
            outputs = finite(outputs_of(subject.model, x).cpu().float(), f"the outputs of {run}")
        probabilities = class_probabilities(outputs, multi_label=subject.multi_label)
        places = slice(start, start + len(x))
        highest = probabilities.max(dim=1)
        own.labels[places] = labels.numpy()
        own.classes[places], own.probabilities[places] = highest.indices.numpy(), highest.values.numpy()
        is_class = (labels >= 0) & (labels < probabilities.shape[1])
        chosen = probabilities.gather(1, labels.clamp(0, probabilities.shape[1] - 1)[:, None])[:, 0]
        own.of_label[places] = torch.where(is_class, chosen, torch.nan).numpy()

    def _correlate(self, run: str, start: int, x: Tensor, labels: Tensor) -> None:
        if run in self._without:
            return
        if not (layer := self._explorer.top(run)):
            self._without[run] = str(NoLayer(run))
            return
        try:
            back = invert.reconstruct(self._explorer.subject(run).model, x, layer)
        except ValueError as error:  # no activation function that can be followed
            self._without[run] = f"{run}: {error}"
            return
        self.runs[run].correlations[start : start + len(x)] = invert.correlation(back, x).cpu().numpy()

    # --- files

    def _files(self) -> dict[str, Path]:
        """For each run whose network and images can be told from others."""
        if self._cache is None or not self.count:
            return {}
        prints = {run: store.fingerprint(self._explorer.measured(run), self.count) for run in self.runs}
        return {run: self._cache / f"index-{found[:32]}.npz" for run, found in prints.items() if found}

    def _take_over(self, run: str, file: Path) -> None:
        """What a file says, if the first images, computed again, say the same: a network's code may have changed while its
        weights have not."""
        found, own = store.read(file, self.count), self.runs[run]
        if found is None or own.predicted:
            return
        self._batch(range(min(_CHECKED, self.count)), [run], self._predict)
        first = slice(0, _CHECKED)
        is_same = np.array_equal(own.classes[first], found.classes[first]) and np.allclose(
            own.probabilities[first], found.probabilities[first], atol=1e-3, equal_nan=True
        )
        if np.isnan(found.correlations[: found.correlated]).all():
            found.correlated = 0  # none can be told, or could be in the version that wrote the file: why is said anew
        self.runs[run] = found if is_same else RunIndex.empty(self.count)

    def _write(self, files: dict[str, Path]) -> None:
        with suppress(OSError):  # a folder that cannot be written: then it is computed again the next time
            for run, file in files.items():
                store.write(file, self.runs[run])
