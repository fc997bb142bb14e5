"""Batches: which images, in which order, on which process. Step k of epoch e has the same images, augmented in the same way,
however often the training was interrupted before it, and whatever the number of processes is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bort.train._rng import seed_of
from bort.train._schema import Recipe
from bort.train._world import World


@dataclass(frozen=True)
class Batch:
    """One process's part of a batch."""

    inputs: dict[str, Tensor]
    """What `Feed.read` makes the images of. A captured step copies them to where its CUDA graph reads them."""
    count: int
    """Images in this part."""
    weight: float
    """The factor for the mean loss of this part, so that the mean over the processes is that over the whole batch; 1 if their
    parts are of equal size."""
    skipped: int = 0
    """Images that belong to this part and could not be read."""


class Feed(Protocol):
    """Where the loop gets its images from."""

    per_epoch: int
    """Batches in an epoch."""
    skipped: int
    """Images that could not be read, of tests and of batches that were trained on (`Counters` adds those)."""

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """This process's parts of the batches of an epoch, from number ``start`` on; both are counted from 0."""

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a batch, on the device. The same kernels for all batches of one size, and nothing is read
        back to the host, so that a CUDA graph can contain it."""

    def test(self, world: World) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the test images and labels, on the device."""

    def close(self) -> None:
        """End worker processes and threads, if there are any."""


def order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of the images in an epoch, drawn on the CPU so that it is the same for every device."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed_of(seed, "order", epoch)))


def part_of(batch: Tensor, recipe: Recipe, world: World) -> Tensor:
    """The images of a batch that belong to this process. Where images are mixed, neighbours are partners and stay together,
    so that every number of processes mixes the same images; one without a partner is left out."""
    if not is_mixed(recipe):
        return batch[world.rank :: world.size]
    return batch[: len(batch) // 2 * 2].view(-1, 2)[world.rank :: world.size].flatten()


def is_mixed(recipe: Recipe) -> bool:
    return bool(recipe.augment.mixup or recipe.augment.cutmix)


def weight(part: int, batch: int, world: World) -> float:
    """`Batch.weight` of ``part`` images of ``batch`` that all processes train on."""
    return part * world.size / batch


def trained_on(batch: Tensor, recipe: Recipe) -> int:
    """Images of a batch that have a part in it: where images are mixed, those with a partner."""
    return len(batch) // 2 * 2 if is_mixed(recipe) else len(batch)


def check_batch(recipe: Recipe, count: int, world: World) -> None:
    """Refuse batches, out of ``count`` images, that leave a process without any."""
    least = world.size * (2 if is_mixed(recipe) else 1)
    what = "two images, which are mixed with each other" if is_mixed(recipe) else "one image"
    if recipe.batch < least:
        raise ValueError(f"batch={recipe.batch} is too few for {world.size} processes: give each at least {what}")
    if count < least:
        raise ValueError(f"{count} training images are too few for {world.size} processes: give each at least {what}")
