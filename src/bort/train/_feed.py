"""Batches: which images, in which order, on which process. Step k of epoch e has the same images however often the training
was interrupted before it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bort.data import Dataset
from bort.train._rng import seed_of
from bort.train._schema import Recipe
from bort.train._world import World

_TEST_BATCH = {"cuda": 5000}  # elsewhere 1,000


@dataclass(frozen=True)
class Batch:
    """One process's part of a batch."""

    images: Tensor | None
    labels: Tensor | None
    index: Tensor | None
    """Which training images, if they are in memory already; then ``images`` and ``labels`` are None."""
    count: int
    """Images in this part."""
    weight: float
    """The factor for the mean loss of this part, so that the mean over the processes is that over the whole batch; 1 if their
    parts are of equal size."""


class Feed(Protocol):
    """Where the loop gets its images from."""

    per_epoch: int
    """Batches in an epoch."""
    skipped: int
    """Images that could not be read so far."""

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """This process's parts of the batches of an epoch, from number ``start`` on; both are counted from 0."""

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a batch, on the device."""

    def test(self, world: World) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the test images and labels, on the device."""

    def close(self) -> None:
        """End worker processes, if there are any."""


def order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of the images in an epoch, drawn on the CPU so that it is the same for every device."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed_of(seed, "order", epoch)))


def weight(part: int, batch: int, world: World) -> float:
    """`Batch.weight` of ``part`` images of a batch."""
    return part * world.size / batch


def check_batch(recipe: Recipe, world: World) -> None:
    if recipe.batch < world.size:
        raise ValueError(f"batch={recipe.batch} is too few for {world.size} processes: give each at least one image")


class MemoryFeed:
    """Images kept on the device as bytes: shuffled, gathered and normalised there."""

    skipped = 0

    def __init__(self, data: Dataset, recipe: Recipe, world: World, memory_format: torch.memory_format) -> None:
        channels, height, width = data.train_images.shape[1:]
        expected = recipe.data
        shape = expected.channels, expected.image_size, expected.image_size
        if (channels, height, width) != shape or data.classes > expected.classes:
            raise ValueError(
                f"{data.name} has images of {height}×{width} with {channels} channels in {data.classes} classes, the recipe "
                f"data.image_size={expected.image_size}, data.channels={expected.channels}, data.classes={expected.classes}"
            )
        check_batch(recipe, world)
        self._data = data.to(world.device)
        self._recipe, self._world, self._memory_format = recipe, world, memory_format
        count, tail = divmod(len(data.train_images), recipe.batch)
        self.per_epoch = count + (tail >= world.size)  # a last batch with an image for each process, or none

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        world = self._world
        shuffled = order(len(self._data.train_images), self._recipe.seed, epoch).to(world.device)
        for batch in torch.split(shuffled, self._recipe.batch)[start : self.per_epoch]:
            part = batch[world.rank :: world.size]
            yield Batch(None, None, part, len(part), weight(len(part), len(batch), world))

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self._normalise(self._data.train_images[batch.index]), self._data.train_labels[batch.index]

    def test(self, world: World) -> Iterator[tuple[Tensor, Tensor]]:
        images, labels = self._data.test_images, self._data.test_labels
        size = _TEST_BATCH.get(world.device.type, 1000)
        for start in range(world.rank, math.ceil(len(images) / size), world.size):
            part = slice(start * size, (start + 1) * size)
            yield self._normalise(images[part]), labels[part]

    def close(self) -> None:
        pass  # there are no workers

    def _normalise(self, images: Tensor) -> Tensor:
        return self._data.normalise(images).contiguous(memory_format=self._memory_format)
