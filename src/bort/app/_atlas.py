"""Atlases: which test images excite which channels of a layer, computed in the background."""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from bort import invert
from bort._inspect import decisions_of
from bort.app import _atlas_store as store
from bort.app._atlas_store import Atlas
from bort.app._exceptions import Busy
from bort.app._exit import seconds_left
from bort.app._index_store import fingerprint
from bort.explain import Cancelled
from bort.report import Missing

if TYPE_CHECKING:
    from bort.app._explorer import Explorer

MOST_IMAGES: Final = 1000
MOST_SECONDS: Final = 120.0
"""After which an atlas is left at the images that it has come to."""
_MOST_NUMBERS: Final = 2**24  # images × channels: 128 MiB of an atlas
_KEPT: Final = 8  # atlases in memory
_LARGEST_BATCH: Final = 64
_BATCH_SECONDS: Final = 0.03  # what a page's question may have to wait
_QUIET_SECONDS: Final = 0.4  # for which no page has asked anything

State = Literal["waiting", "running", "done", "failed", "closed"]


@dataclass
class Job:
    """One layer of one run."""

    run: str
    layer: str
    atlas: Atlas
    state: State = "waiting"
    message: str = ""
    """Why it failed."""
    seconds: float = 0.0
    batch: int = 1
    file: Path | None = field(default=None, repr=False)
    in_file: int | None = field(default=None, repr=False)
    """How many images its file knows; None before the file has been looked for."""


class Atlases:
    """One thread, which goes on with the layer that was asked for last. Pages' questions come first: it computes while none
    is asked, and rests as long as it computes.

    Args:
        explorer: whose runs and test images these are.
        cache: the folder in which atlases are kept, for each network, layer and their images; None: in memory only.
    """

    def __init__(self, explorer: Explorer, cache: Path | None = None) -> None:
        self._explorer, self._cache = explorer, cache
        self._jobs: dict[tuple[str, str], Job] = {}  # that was asked for last at the end
        self._lock = threading.Condition()
        self._fingerprints: dict[str, str] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def __call__(self, run: str, layer: str, *, again: bool = False) -> Job:
        """The layer's atlas with what is known so far, begun if it is new; ``again`` begins anew after a failure."""
        channels = self._explorer.channel_count(run, layer)
        with self._lock:
            job = self._jobs.pop((run, layer), None)
            if job is None or (again and job.state == "failed"):
                images = min(MOST_IMAGES, self._explorer.test_images.count, max(1, _MOST_NUMBERS // channels))
                job = Job(run, layer, Atlas.empty(images, channels), state="waiting" if images else "done")
            self._jobs[run, layer] = job
            for old in list(self._jobs)[:-_KEPT]:
                del self._jobs[old]
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, name="bort-atlases", daemon=True)
                self._thread.start()
            self._lock.notify()
            return job

    def close(self) -> None:
        """End the thread after its batch. What is known is kept for the next time."""
        with self._lock:
            self._closed = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join(seconds_left())

    # --- the thread

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job.state = "running"
                if job.in_file is None:
                    self._open(job)
                elif job.atlas.known < job.atlas.images and job.seconds < MOST_SECONDS:
                    self._batch(job)
                else:
                    self._write(job)
                    job.state = "done"
            except (Busy, Cancelled):
                continue
            except Exception as error:  # the page gets a message, never a traceback
                job.state, job.message = "failed", str(error) or type(error).__name__
        for job in self._jobs.values():
            if job.state in ("waiting", "running"):
                self._write(job)
                job.state = "closed"

    def _next(self) -> Job | None:
        """The unfinished one that was asked for last; None at the end."""
        with self._lock:
            while not self._closed:
                for job in reversed(self._jobs.values()):
                    if job.state in ("waiting", "running"):
                        return job
                self._lock.wait()
        return None

    def _batch(self, job: Job) -> None:
        start = job.atlas.known
        count = min(job.batch, job.atlas.images - start)
        seconds = self._compute(job, start, count)
        job.atlas.known = start + count
        job.seconds += seconds
        if seconds < _BATCH_SECONDS / 2:
            job.batch = min(2 * job.batch, _LARGEST_BATCH)
        elif seconds > 2 * _BATCH_SECONDS:
            job.batch = max(1, job.batch // 2)
        time.sleep(min(seconds, 0.2))

    def _compute(self, job: Job, start: int, count: int) -> float:
        """Fill in ``count`` images, and return how long it took. Where one of them cannot be read, each by itself."""
        run, atlas = job.run, job.atlas
        try:
            inputs, labels = self._explorer.test_images.read(range(start, start + count))
        except (Missing, ValueError):
            inputs, labels = {}, {}
        if len(labels.get(run, ())) != count:
            return sum(self._compute(job, n, 1) for n in range(start, start + count)) if count > 1 else 0.0
        back = invert.Backtracker(self._explorer.subject(run).model, job.layer, "gradient")
        self._explorer.lock.give_way(lambda: self._closed, _QUIET_SECONDS)
        with self._explorer.lock:
            begun = time.perf_counter()
            trace = back.trace(inputs[run])
            values, places = trace.maps.flatten(2).max(dim=2)
            classes = decisions_of(trace.outputs)
            seconds = time.perf_counter() - begun
        rows = slice(start, start + count)
        atlas.values[rows], atlas.places[rows] = values.float().cpu().numpy(), places.cpu().numpy()
        atlas.labels[rows], atlas.classes[rows] = labels[run].numpy(), classes.cpu().numpy()
        return seconds

    # --- files

    def _open(self, job: Job) -> None:
        """What a file says, if the first image, computed again, says the same: a network's code may have changed while its
        weights have not."""
        job.file, job.in_file = self._file(job), 0
        found = None if job.file is None else store.read(job.file, job.atlas.images, job.atlas.channels)
        if found is None or not found.known:
            return
        self._compute(job, 0, 1)
        if np.allclose(job.atlas.values[0], found.values[0], rtol=1e-3, atol=1e-4, equal_nan=True):
            job.atlas, job.in_file = found, found.known

    def _file(self, job: Job) -> Path | None:
        """None if the images cannot tell whether they have changed."""
        if self._cache is None:
            return None
        if job.run not in self._fingerprints:
            own = self._explorer.measured(job.run)
            self._fingerprints[job.run] = fingerprint(own, self._explorer.test_images.count)
        known = self._fingerprints[job.run]
        if not known:
            return None
        digest = hashlib.sha256(f"{store.FORMAT} {known} {job.atlas.images} {job.layer}".encode()).hexdigest()
        return self._cache / f"atlas-{digest[:32]}.npz"

    def _write(self, job: Job) -> None:
        if job.file is not None and job.atlas.known != job.in_file:
            with suppress(OSError):  # a folder that cannot be written: then it is computed again the next time
                store.write(job.file, job.atlas)
                job.in_file = job.atlas.known
