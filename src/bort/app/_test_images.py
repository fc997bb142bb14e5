"""The test images by their names, as each run's network sees them."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from bort.app._exceptions import Unknown
from bort.app._exit import seconds_left
from bort.app._gallery import GalleryImage
from bort.explain import Cancelled
from bort.report import Measured, Missing

MOST: Final = 5000
"""Test images that the explorer knows; further ones have no name."""
_NAME: Final = re.compile(r"test-(0|[1-9][0-9]{0,5})")


class NumberedImages:
    """``test-7`` is the image with the number 7 in the report's order (:attr:`bort.report.Measured.order`)."""

    def __init__(self, measured: Mapping[str, Measured]) -> None:
        self._measured = measured
        self._first = next(iter(measured.values()))
        self._lock = threading.Lock()  # a data set of somebody else's may not be made for several threads
        self._closed = False

    @cached_property
    def count(self) -> int:
        """0 if there are none, or if they are not at hand."""
        try:
            return min(MOST, *(len(self._source(run).order) for run in self._measured))
        except Missing:
            return 0

    def named(self, name: str) -> GalleryImage:
        number = _NAME.fullmatch(name)
        if number is None:
            raise Unknown(f"There is no image {name!r} any more; choose another or send it again.")
        if int(number[1]) >= self.count:
            there_are = f"there are test-0 to test-{self.count - 1}" if self.count else "there are no test images"
            raise Unknown(f"There is no image {name!r}: {there_are}.")
        try:
            inputs, labels = self.read([int(number[1])])
        except (Missing, ValueError) as error:
            raise Unknown(f"The image {name!r} cannot be read: {error}.") from error
        return GalleryImage(name, inputs, self._first.view.name(int(labels[self._first.name][0])))

    def read(self, numbers: Sequence[int]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The images with these numbers for each run, (N, C, H, W), and their labels (N,): two networks may have different
        classes. Raises Cancelled once it is closed."""
        read: dict[str, tuple[Tensor, Tensor]] = {}
        with self._lock:
            if self._closed:
                raise Cancelled("The explorer has been closed.")
            for run in self._measured:
                source = self._source(run)
                if source.name not in read:
                    read[source.name] = source.read(numbers)
            inputs = {
                run: read[self._source(run).name][0].to(own.subject.device, own.subject.dtype)
                for run, own in self._measured.items()
            }
        return inputs, {run: read[self._source(run).name][1] for run in self._measured}

    def first(self, count: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """So many of the first images as `read` has them, without those that cannot be read for one of the runs."""
        found = []
        for number in range(min(count, self.count)):
            with suppress(Missing, ValueError):
                inputs, labels = self.read([number])
                if all(len(own) for own in labels.values()):
                    found.append((inputs, labels))
        if not found:
            return {run: torch.empty(0) for run in self._measured}, {run: torch.empty(0) for run in self._measured}
        images = {run: torch.cat([inputs[run] for inputs, _ in found]) for run in self._measured}
        return images, {run: torch.cat([labels[run] for _, labels in found]) for run in self._measured}

    def close(self) -> None:
        """Read nothing more, and wait until what is being read is there: its data set may be computing."""
        self._closed = True
        if self._lock.acquire(timeout=seconds_left()):
            self._lock.release()

    def _source(self, run: str) -> Measured:
        """Runs with the same view share the images: reading a data set twice takes seconds."""
        own = self._measured[run]
        return self._first if own.view == self._first.view else own
