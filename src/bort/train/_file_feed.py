"""Batches of images that are read from files by worker processes, which decode and crop them. All that comes after happens in
batches on the device.

timm's own loader shuffles and augments from global generators, so it cannot resume in the middle of an epoch. Here the order
of an epoch and the augmentation of each image come from keys, and torch's DataLoader does the rest.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from bort.augment import Augmentation, CropBoxes, crop_with_pil, image_keys
from bort.data import Folder, View
from bort.train._feed import Batch, check_batch, is_mixed, order, part_of, trained_on, weight
from bort.train._prepare import Preparation, epoch_key, mix_draws
from bort.train._runtime import Runtime
from bort.train._schema import Recipe
from bort.train._world import World

if TYPE_CHECKING:
    from PIL.Image import Image

_TEST_BATCH = 256

Key = tuple[int, int]
"""(epoch, which image)"""
Sample = tuple[Tensor, int, int] | str
"""Bytes (C, size, size), label and number of an image, or the error message of one that could not be read."""


class FileFeed:
    """Images that are decoded whenever they are needed: those of many sizes, and too many to keep in memory."""

    def __init__(
        self,
        data: Folder,
        view: View,
        augmentation: Augmentation | None,
        recipe: Recipe,
        runtime: Runtime,
        world: World,
        memory_format: torch.memory_format,
    ) -> None:
        check_batch(recipe, len(data.train_files), world)
        self._recipe, self._world = recipe, world
        self._count = len(data.train_files)
        self._workers = runtime.workers
        # The last, smaller batch is left out, as is usual on ImageNet, unless it is the only one.
        self.per_epoch = max(1, self._count // recipe.batch)
        self.skipped = 0
        self._train = _Samples(data, data.train_files, recipe, view, augmentation)
        self._test = _Samples(data, data.test_files, recipe, view, None)
        self._prepare = Preparation(recipe, augmentation, view.normaliser(world.device), memory_format)
        self._loaders: dict[_Samples, tuple[DataLoader[Any], list[list[Key]]]] = {}

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        if start >= self.per_epoch:
            return
        recipe, world = self._recipe, self._world
        batches = torch.split(order(self._count, recipe.seed, epoch), recipe.batch)[: self.per_epoch]
        parts = [part_of(batch, recipe, world).tolist() for batch in batches]
        keys = [[(epoch, index) for index in part] for part in parts[start:]]
        key = torch.tensor(epoch_key(recipe, epoch), device=world.device)
        draws = mix_draws(recipe, epoch, start, self.per_epoch).to(world.device) if is_mixed(recipe) else None
        for number, (images, labels, index, unreadable) in enumerate(self._load(self._train, keys), start):
            self._refuse(unreadable)
            if is_mixed(recipe):  # partners are mixed with each other: both or none
                images, labels, index = _whole_pairs(images, labels, index, parts[number])
            if not len(labels):
                raise ValueError(
                    f"not one image of batch {number} of epoch {epoch + 1} can be read, first: {unreadable[0]}"
                )
            inputs = {"images": images, "labels": labels, "index": index, "key": key}
            if draws is not None:
                inputs["mix"] = draws[number - start]
            # By the sizes before images were left out: those of the other processes are not known here.
            share = weight(len(parts[number]), trained_on(batches[number], recipe), world)
            yield Batch(inputs, len(labels), share, len(unreadable))

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        here = {name: value.to(self._world.device, non_blocking=True) for name, value in batch.inputs.items()}
        return self._prepare(here["images"], here["labels"], here["key"], here["index"], here.get("mix"), cropped=True)

    def test(self, world: World) -> Iterator[tuple[Tensor, Tensor]]:
        count = math.ceil(len(self._test.files) / _TEST_BATCH)
        parts = [range(k * _TEST_BATCH, min((k + 1) * _TEST_BATCH, len(self._test.files))) for k in range(count)]
        keys = [[(0, index) for index in part] for part in parts[world.rank :: world.size]]
        skipped = 0
        for images, labels, _, unreadable in self._load(self._test, keys):
            self._refuse(unreadable)
            skipped += len(unreadable)
            if len(labels):
                images, labels = (t.to(self._world.device, non_blocking=True) for t in (images, labels))
                yield self._prepare.normalise(images), labels
        # Only now: a test that is interrupted is repeated, and would count them twice. Where every process tests all images
        # (FSDP2), the first one counts.
        if world.size == self._world.size or self._world.is_first:
            self.skipped += skipped

    def close(self) -> None:
        """End the workers. They ignore SIGTERM, so multiprocessing, which sends it, would wait for them for ever."""
        for loader, _ in self._loaders.values():
            iterator: Any = loader._iterator
            if iterator is not None and self._workers:
                iterator._shutdown_workers()
                for worker in iterator._workers:
                    worker.kill()
        self._loaders.clear()

    def _refuse(self, unreadable: list[str]) -> None:
        if unreadable and self._recipe.data.corrupt == "stop":
            raise ValueError(f"{unreadable[0]}. {REMEDY}")

    def _load(self, samples: _Samples, keys: list[list[Key]]) -> Iterator[tuple[Tensor, Tensor, Tensor, list[str]]]:
        """Images, labels, numbers and error messages of each batch of keys. The workers are started once and stay; the list
        that is their loader's batch sampler gets new keys each time."""
        if samples not in self._loaders:
            sampler: list[list[Key]] = []
            loader: DataLoader[Any] = DataLoader(
                samples,
                batch_sampler=sampler,
                num_workers=self._workers,
                collate_fn=_collate,
                pin_memory=self._world.device.type == "cuda",
                worker_init_fn=_leave_signals_to_the_parent if self._workers else None,
                persistent_workers=self._workers > 0,
                generator=torch.Generator(),  # otherwise it would draw from the global one, which dropout uses
            )
            self._loaders[samples] = loader, sampler
        loader, sampler = self._loaders[samples]
        sampler[:] = keys
        yield from loader


REMEDY = "Remove it, or leave such images out: --data.corrupt skip"


class _Samples(TorchDataset[Sample]):
    """The files of one split, decoded and cropped."""

    def __init__(
        self,
        data: Folder,
        files: list[tuple[str, int]],
        recipe: Recipe,
        view: View,
        augmentation: Augmentation | None,
    ) -> None:
        self.files, self._data, self._recipe = files, data, recipe
        self._view, self._augmentation = view, augmentation

    def __getitems__(self, keys: list[Key]) -> list[Sample]:
        """All images of a batch: crops are drawn for all of them together."""
        images: dict[Key, Image] = {}
        samples: dict[Key, Sample] = dict.fromkeys(keys, "")
        for key in keys:
            try:
                images[key] = self._data.read(self.files[key[1]][0])
            except ValueError as error:
                samples[key] = str(error)  # raised by the parent: here it would come with its traceback as text
        if self._augmentation is None:
            pixels = [self._view.crop(image) for image in images.values()]
        elif images:
            epoch = keys[0][0]
            index = torch.tensor([number for _, number in images])
            sizes = torch.tensor([image.size for image in images.values()])
            boxes = self._augmentation.boxes(
                image_keys(epoch_key(self._recipe, epoch), index), sizes[:, 1], sizes[:, 0]
            )
            size = self._recipe.data.image_size
            pixels = [
                crop_with_pil(image, CropBoxes(*box), size)
                for image, box in zip(images.values(), zip(*boxes, strict=True), strict=True)
            ]
        else:
            pixels = []
        for key, bytes_ in zip(images, pixels, strict=True):
            samples[key] = (bytes_, self.files[key[1]][1], key[1])
        return list(samples.values())

    def __getitem__(self, key: Key) -> Sample:
        return self.__getitems__([key])[0]


def _collate(samples: list[Sample]) -> tuple[Tensor, Tensor, Tensor, list[str]]:
    readable = [sample for sample in samples if not isinstance(sample, str)]
    unreadable = [sample for sample in samples if isinstance(sample, str)]
    if not readable:
        empty = torch.empty(0, dtype=torch.long)
        return torch.empty(0, dtype=torch.uint8), empty, empty, unreadable
    labels, numbers = (torch.tensor([sample[i] for sample in readable]) for i in (1, 2))
    return torch.stack([sample[0] for sample in readable]), labels, numbers, unreadable


def _whole_pairs(images: Tensor, labels: Tensor, index: Tensor, part: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Leave out images whose partner could not be read."""
    if len(index) == len(part):
        return images, labels, index
    readable = set(index.tolist())
    partners = dict(
        zip(part, (other for pair in zip(part[1::2], part[::2], strict=True) for other in pair), strict=True)
    )
    keep = torch.tensor([partners[i] in readable for i in index.tolist()], dtype=torch.bool)
    return images[keep], labels[keep], index[keep]


def _leave_signals_to_the_parent(_: int) -> None:
    """In a worker: Ctrl-C goes to every process of the terminal, but the parent needs its workers until a step has ended."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
