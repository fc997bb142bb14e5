"""Batches out of folders, through timm's transforms: random crops, RandAugment, erasing, splits, mixup and cutmix.

timm's own loader shuffles and augments from global generators, so it cannot resume in the middle of an epoch. Here the order
of an epoch and the augmentation of each image come from keys (`_rng`), and torch's DataLoader does the rest.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data import Dataset as TorchDataset

from bort.data import Folder, View
from bort.train._feed import Batch, check_batch, order, weight
from bort.train._rng import seed_all, seeded
from bort.train._runtime import Runtime
from bort.train._schema import Recipe
from bort.train._world import World

if TYPE_CHECKING:
    from PIL.Image import Image

_TEST_BATCH = 256

Key = tuple[int, int]
"""(epoch, which image)"""
Sample = tuple[Tensor, int] | str
"""Views (splits, C, H, W) and a label, or the error message of an image that could not be read."""


class FolderFeed:
    """Images read from files by worker processes."""

    def __init__(
        self, data: Folder, recipe: Recipe, runtime: Runtime, world: World, memory_format: torch.memory_format
    ) -> None:
        if recipe.data.channels != 3:
            raise ValueError(f"data.channels={recipe.data.channels}: images of a folder are read in colour, 3 channels")
        check_batch(recipe, world)
        if data.classes != recipe.data.classes:
            raise ValueError(
                f"{data.root} has {data.classes} classes, the recipe data.classes={recipe.data.classes}: "
                f"set --data.classes {data.classes}, or point to another folder"
            )
        self._recipe, self._world, self._memory_format = recipe, world, memory_format
        self._count = len(data.train_files)
        self._workers = runtime.workers
        # The last, smaller batch is left out, as is usual on ImageNet, unless it is the only one.
        self.per_epoch = max(1, self._count // recipe.batch)
        self.skipped = 0
        view = data.view(recipe.data.image_size)
        views = _TrainingViews(recipe, view) if recipe.augment.crop_and_flip else view
        self._train = _Samples(data, data.train_files, recipe, views)
        self._test = _Samples(data, data.test_files, recipe, view)
        self._mix = _mixing(recipe)
        self._loaders: dict[_Samples, tuple[DataLoader[Any], list[list[Key]]]] = {}

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        world = self._world
        batches = torch.split(order(self._count, self._recipe.seed, epoch), self._recipe.batch)[: self.per_epoch]
        parts = [batch[world.rank :: world.size].tolist() for batch in batches]
        keys = [[(epoch, index) for index in part] for part in parts[start:]]
        for number, (images, labels, unreadable) in enumerate(self._load(self._train, keys), start):
            self._refuse(unreadable)
            self.skipped += len(unreadable)
            if not len(labels):
                raise ValueError(
                    f"not one image of batch {number} of epoch {epoch + 1} can be read, first: {unreadable[0]}"
                )
            if self._mix is not None:
                with seeded(self._recipe.seed, "mix", epoch, number, world.rank):
                    images, labels = self._mix(images[: len(images) // 2 * 2], labels[: len(labels) // 2 * 2])
            part = len(parts[number])
            yield Batch(images, labels, None, part - len(unreadable), weight(part, len(batches[number]), world))

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.images is not None
        assert batch.labels is not None
        images = batch.images.to(self._world.device, non_blocking=True)
        return (
            images.contiguous(memory_format=self._memory_format),
            batch.labels.to(self._world.device, non_blocking=True),
        )

    def test(self, world: World) -> Iterator[tuple[Tensor, Tensor]]:
        count = math.ceil(len(self._test.files) / _TEST_BATCH)
        parts = [range(k * _TEST_BATCH, min((k + 1) * _TEST_BATCH, len(self._test.files))) for k in range(count)]
        keys = [[(0, index) for index in part] for part in parts[world.rank :: world.size]]
        skipped = 0
        for images, labels, unreadable in self._load(self._test, keys):
            self._refuse(unreadable)
            skipped += len(unreadable)
            if len(labels):
                yield self.read(Batch(images, labels, None, len(labels), 1.0))
        self.skipped += skipped  # only now: a test that is interrupted is repeated, and would count them twice

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
            raise ValueError(f"{unreadable[0]}. Remove it, or leave such images out: --data.corrupt skip")

    def _load(self, samples: _Samples, keys: list[list[Key]]) -> Iterator[tuple[Tensor, Tensor, list[str]]]:
        """Images, labels and error messages of each batch of keys. The workers are started once and stay; the list that is
        their loader's batch sampler gets new keys each time."""
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


class _Samples(TorchDataset[Sample]):
    """The files of one split, read and turned into views."""

    def __init__(
        self, data: Folder, files: list[tuple[str, int]], recipe: Recipe, views: Callable[[Image], Tensor]
    ) -> None:
        self.files, self._data, self._views = files, data, views
        self._seed = recipe.seed

    def __getitem__(self, key: Key) -> Sample:
        epoch, index = key
        file, label = self.files[index]
        try:
            image = self._data.read(file)
        except ValueError as error:
            return str(error)  # raised by the parent: an error raised in a worker comes with its traceback as text
        augmentation_key = self._seed, "image", epoch, index
        if get_worker_info() is not None:
            seed_all(*augmentation_key)
            return self._views(image), label
        with seeded(*augmentation_key):
            return self._views(image), label


def _collate(samples: list[Sample]) -> tuple[Tensor, Tensor, list[str]]:
    """Images: all first views, then all second ones …, as timm's JSD loss expects them; their labels; error messages."""
    readable = [sample for sample in samples if not isinstance(sample, str)]
    unreadable = [sample for sample in samples if isinstance(sample, str)]
    if not readable:
        return torch.empty(0), torch.empty(0, dtype=torch.long), unreadable
    views = torch.stack([sample[0] for sample in readable], dim=1)
    labels = torch.tensor([sample[1] for sample in readable]).repeat(len(views))
    return views.flatten(0, 1), labels, unreadable


class _TrainingViews:
    """timm's three stages: crop and flip; RandAugment; to a normalised tensor, with parts erased. With splits all views share
    the crop, and the first of them is neither augmented nor erased.

    Mean and deviation are those of the view, which normalises the test images. RandAugment also fills with the mean the
    places that a shift or rotation leaves empty. Erasing needs neither: it fills normalised images with normal noise.
    """

    def __init__(self, recipe: Recipe, view: View) -> None:
        from timm.data import create_transform

        augment, size = recipe.augment, recipe.data.image_size
        options: dict[str, Any] = {
            "is_training": True,
            "color_jitter": augment.color_jitter or None,
            "auto_augment": augment.randaugment or None,
            "interpolation": "random",
            "mean": view.mean,
            "std": view.std,
            "re_mode": "pixel",
            "separate": True,
        }
        try:
            self._crop, self._change, self._finish = create_transform(size, **options, re_prob=augment.erase)
        except (AssertionError, KeyError, ValueError) as error:
            raise ValueError(
                f"augment.randaugment={augment.randaugment!r} is not in timm's notation, such as rand-m9-mstd0.5 ({error!r})"
            ) from error
        *_, self._finish_clean = create_transform(size, **options)
        self._splits = augment.splits

    def __call__(self, image: Image) -> Tensor:
        cropped = self._crop(image)
        clean = [self._finish_clean(cropped)] if self._splits else []
        augmented = [self._finish(self._change(cropped)) for _ in range(max(1, self._splits - 1))]
        return torch.stack([*clean, *augmented])


def _mixing(recipe: Recipe) -> Any:
    """timm's mixup and cutmix, one of them drawn for each batch; None if the recipe has neither."""
    augment = recipe.augment
    if not (augment.mixup or augment.cutmix):
        return None
    from timm.data import Mixup

    return Mixup(augment.mixup, augment.cutmix, label_smoothing=recipe.smoothing, num_classes=recipe.data.classes)


def _leave_signals_to_the_parent(_: int) -> None:
    """In a worker: Ctrl-C goes to every process of the terminal, but the parent needs its workers until a step has ended."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
