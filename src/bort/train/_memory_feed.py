"""Batches of images that are in memory as bytes: on the device, or in a file that is mapped into the host's memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bort.augment import Augmentation
from bort.train._feed import Batch, check_batch, is_mixed, order, part_of, trained_on, weight
from bort.train._prepare import Preparation, epoch_key, mix_draws
from bort.train._schema import Recipe
from bort.train._world import World

_TEST_PIXELS = {"cuda": 5000 * 32**2}  # of a test batch; elsewhere a fifth of it
_AHEAD = 3  # batches that are gathered on the host before the step needs them


@dataclass(frozen=True)
class Images:
    """Training and test images as bytes (N, C, H, W), with their labels."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    normalise: Callable[[Tensor], Tensor]
    unreadable: dict[str, dict[int, str]] = field(default_factory=dict)
    """By split ("train", "test"): images that could not be read, with the message that names the file."""
    on_device: bool = True
    """Whether the training images live on the device; otherwise they stay where they are, and batches are copied."""


class MemoryFeed:
    """Shuffles, gathers, augments and normalises on the device."""

    def __init__(
        self,
        images: Images,
        augmentation: Augmentation | None,
        recipe: Recipe,
        world: World,
        memory_format: torch.memory_format,
        *,
        drop_last: bool,
    ) -> None:
        check_batch(recipe, len(images.train), world)
        device = world.device
        self._images, self._recipe, self._world = images, recipe, world
        self._train = images.train.to(device) if images.on_device else images.train
        self._train_labels = images.train_labels.to(device)
        self._test, self._test_labels = _readable_test(images, device)
        self._prepare = Preparation(recipe, augmentation, images.normalise, memory_format)
        self._unreadable = images.unreadable.get("train", {})
        self._readable = torch.ones(len(images.train), dtype=torch.bool)
        self._readable[list(self._unreadable)] = False
        self.skipped = 0
        count, tail = divmod(len(images.train), recipe.batch)
        if drop_last:
            self.per_epoch = max(1, count)
        else:
            self.per_epoch = count + (tail >= world.size)  # a last batch with an image for each process, or none
        self._gatherer = None if images.on_device else ThreadPoolExecutor(1, "gather")

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        if start >= self.per_epoch:
            return
        recipe, world = self._recipe, self._world
        shuffled = torch.split(order(len(self._images.train), recipe.seed, epoch), recipe.batch)[: self.per_epoch]
        parts = [part_of(batch, recipe, world) for batch in shuffled]
        indices = [self._readable_of(part) for part in parts[start:]]
        on_device = torch.split(torch.cat(indices).to(world.device), [len(index) for index in indices])
        key = torch.tensor(epoch_key(recipe, epoch), device=world.device)
        draws = mix_draws(recipe, epoch, start, self.per_epoch).to(world.device) if is_mixed(recipe) else None
        gathered = self._gathered(indices)
        for number, (index, local) in enumerate(zip(indices, on_device, strict=True), start):
            if not len(index):
                first = next(self._unreadable[i] for i in parts[number].tolist() if i in self._unreadable)
                raise ValueError(f"not one image of batch {number} of epoch {epoch + 1} can be read, first: {first}")
            inputs = {"index": local, "key": key}
            if draws is not None:
                inputs["mix"] = draws[number - start]
            if gathered is not None:
                inputs["images"] = next(gathered)
            skipped = int((~self._readable[parts[number]]).sum()) if self._unreadable else 0
            together = self._readable_of(shuffled[number][: trained_on(shuffled[number], recipe)])
            yield Batch(inputs, len(index), weight(len(index), len(together), world), skipped)

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs = batch.inputs
        index = inputs["index"]
        gathered = inputs.get("images")
        images = self._train[index] if gathered is None else gathered.to(self._world.device, non_blocking=True)
        labels = self._train_labels[index]
        return self._prepare(images, labels, inputs["key"], index, inputs.get("mix"), cropped=False)

    def test(self, world: World) -> Iterator[tuple[Tensor, Tensor]]:
        pixels = _TEST_PIXELS.get(world.device.type, 1000 * 32**2)
        size = max(64, min(pixels // self._test[0, 0].numel(), pixels // 32**2))
        for start in range(world.rank, math.ceil(len(self._test) / size), world.size):
            part = slice(start * size, (start + 1) * size)
            yield self._prepare.normalise(self._test[part].to(world.device)), self._test_labels[part]
        if self._world.is_first:  # only now: a test that is interrupted is repeated, and would count them twice
            self.skipped += len(self._images.unreadable.get("test", {}))

    def close(self) -> None:
        if self._gatherer is not None:
            self._gatherer.shutdown(wait=True, cancel_futures=True)

    def _readable_of(self, part: Tensor) -> Tensor:
        """The images of a part that could be read; of pairs that are mixed with each other, both or none."""
        if not self._unreadable:
            return part
        keep = self._readable[part]
        if is_mixed(self._recipe):
            keep = keep.view(-1, 2).all(dim=1).repeat_interleave(2)
        return part[keep]

    def _gathered(self, indices: list[Tensor]) -> Iterator[Tensor] | None:
        """The images of each batch, gathered by a thread that is a few batches ahead; None if they are on the device."""
        return None if self._gatherer is None else self._run_ahead(self._gatherer, indices)

    def _run_ahead(self, gatherer: ThreadPoolExecutor, indices: list[Tensor]) -> Iterator[Tensor]:
        pending: list[Future[Tensor]] = []
        for number in range(len(indices)):
            while len(pending) < _AHEAD and number + len(pending) < len(indices):
                pending.append(gatherer.submit(self._gather, indices[number + len(pending)]))
            yield pending.pop(0).result()

    def _gather(self, index: Tensor) -> Tensor:
        images = self._train[index]
        return images.pin_memory() if self._world.device.type == "cuda" else images


def _readable_test(images: Images, device: torch.device) -> tuple[Tensor, Tensor]:
    """Test images and labels without those that could not be read."""
    pixels, labels = images.test, images.test_labels
    unreadable = images.unreadable.get("test", {})
    if unreadable:
        keep = torch.ones(len(pixels), dtype=torch.bool)
        keep[list(unreadable)] = False
        if not keep.any():
            raise ValueError("not one of the test images can be read")
        pixels, labels = pixels[keep], labels[keep]
    return (pixels.to(device) if images.on_device else pixels), labels.to(device)
