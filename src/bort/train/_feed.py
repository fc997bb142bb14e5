"""Batches: which images, in which order, on which process; so that step k of epoch e is the same however one got there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bort.data import Dataset
from bort.train._schema import Recipe
from bort.train._rng import seed_of
from bort.train._world import World

_TEST_BATCH = {"cuda": 5000}  # elsewhere 1,000


@dataclass(frozen=True)
class Batch:
    """One process's part of a batch."""

    images: Tensor | None
    labels: Tensor | None
    index: Tensor | None
    """Where the images are in memory, if they are there already."""
    count: int
    """Images in this part."""
    weight: float
    """What the mean loss over this part counts in the mean over all parts: 1 where they are of equal size."""


class Feed(Protocol):
    """Where the loop gets its images from."""

    per_epoch: int
    skipped: int

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch (counted from 0), from the start-th on."""

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a batch, on the device."""

    def test(self, world: World) -> Iterator[tuple[Tensor, Tensor]]:
        """The test images and labels, on the device; in a world of several processes this one's share."""

    def close(self) -> None:
        """No more batches are wanted."""


def order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of the images in an epoch: drawn on the CPU, so that it is the same on every device."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed_of(seed, "order", epoch)))


def weight(mine: int, whole: int, world: World) -> float:
    return mine * world.size / whole


def check_batch(recipe: Recipe, world: World) -> None:
    if recipe.batch < world.size:
        raise ValueError(f"batch={recipe.batch} is too few for {world.size} processes: give each at least one image")


class MemoryFeed:
    """Images that live on the device as bytes: shuffled, gathered and normalised there."""

    skipped = 0

    def __init__(self, data: Dataset, recipe: Recipe, world: World, memory_format: torch.memory_format) -> None:
        channels, height, width = data.train_images.shape[1:]
        wanted = recipe.data.channels, recipe.data.image_size, recipe.data.image_size
        if (channels, height, width) != wanted or data.classes > recipe.data.classes:
            raise ValueError(
                f"{data.name} has images of {height}×{width} with {channels} channels in {data.classes} classes, the recipe "
                f"data.image_size={wanted[1]}, data.channels={wanted[0]}, data.classes={recipe.data.classes}"
            )
        check_batch(recipe, world)
        self._data = data.to(world.device)
        self._recipe, self._world, self._memory_format = recipe, world, memory_format
        count, tail = divmod(len(data.train_images), recipe.batch)
        self.per_epoch = count + (tail >= world.size)  # fewer images than processes in the last batch: left out

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        world = self._world
        shuffled = order(len(self._data.train_images), self._recipe.seed, epoch).to(world.device)
        for whole in torch.split(shuffled, self._recipe.batch)[start : self.per_epoch]:
            mine = whole[world.rank :: world.size]
            yield Batch(None, None, mine, len(mine), weight(len(mine), len(whole), world))

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self._normalise(self._data.train_images[batch.index]), self._data.train_labels[batch.index]

    def test(self, world: World) -> Iterator[tuple[Tensor, Tensor]]:
        images, labels = self._data.test_images, self._data.test_labels
        size = _TEST_BATCH.get(world.device.type, 1000)
        for start in range(world.rank, math.ceil(len(images) / size), world.size):
            part = slice(start * size, (start + 1) * size)
            yield self._normalise(images[part]), labels[part]

    def close(self) -> None:
        pass  # nothing to end

    def _normalise(self, images: Tensor) -> Tensor:
        return self._data.normalise(images).contiguous(memory_format=self._memory_format)
