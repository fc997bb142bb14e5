"""From bytes on the device to a network's inputs and targets: cropped, augmented, normalised and mixed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bort.augment import Augmentation, image_keys, mix_draw, mixed
from bort.data import View
from bort.train._feed import is_mixed
from bort.train._rng import seed_of
from bort.train._schema import Recipe


def augmentation_of(recipe: Recipe, view: View) -> Augmentation | None:
    """What the recipe asks for; None if training images are not augmented. Mean and deviation are those of the view, which
    normalises the test images."""
    augment = recipe.augment
    if not augment.crop_and_flip:
        return None
    shape = recipe.data.image_size, view.mean, view.std
    try:
        Augmentation(*shape, randaugment=augment.randaugment)
    except ValueError as error:
        raise ValueError(f"augment.randaugment={augment.randaugment!r} is not in timm's notation: {error}") from error
    return Augmentation(
        *shape,
        randaugment=augment.randaugment,
        color_jitter=augment.color_jitter,
        erase=augment.erase,
        splits=augment.splits,
    )


def epoch_key(recipe: Recipe, epoch: int) -> int:
    """What the draws of an epoch's images begin with (:func:`bort.augment.image_keys`)."""
    return seed_of(recipe.seed, "image", epoch)


def mix_draws(recipe: Recipe, epoch: int, start: int, stop: int) -> Tensor:
    """The draws of mixup and cutmix for the batches from ``start`` to ``stop`` of an epoch, a row each."""
    augment, size = recipe.augment, recipe.data.image_size
    seeds = (seed_of(recipe.seed, "mix", epoch, number) for number in range(start, stop))
    return torch.stack([mix_draw(seed, augment.mixup, augment.cutmix, size) for seed in seeds])


class Preparation:
    """What is done to a batch of training images after they are on the device."""

    def __init__(
        self,
        recipe: Recipe,
        augmentation: Augmentation | None,
        normalise: Callable[[Tensor], Tensor],
        memory_format: torch.memory_format,
    ) -> None:
        self._recipe, self._augmentation, self._normalise = recipe, augmentation, normalise
        self._memory_format = memory_format

    def __call__(
        self, images: Tensor, labels: Tensor, key: Tensor, index: Tensor, mix: Tensor | None, *, cropped: bool
    ) -> tuple[Tensor, Tensor]:
        """Inputs and targets.

        Args:
            images: bytes (B, C, H, W).
            key: `epoch_key`, 0-dim.
            index: which training images they are.
            mix: a row of `mix_draws`.
            cropped: whether the images have been cropped and flipped already, when they were read.
        """
        recipe = self._recipe
        if self._augmentation is None:
            inputs = self.normalise(images)
        else:
            finish = self._augmentation.finish if cropped else self._augmentation
            inputs = finish(images, image_keys(key, index), memory_format=self._memory_format)
            labels = labels.repeat(len(inputs) // len(images))
        if is_mixed(recipe):
            assert mix is not None
            return mixed(inputs, labels, mix, recipe.data.classes, recipe.smoothing)
        return inputs, labels

    def normalise(self, images: Tensor) -> Tensor:
        """Bytes to inputs, without augmentation."""
        return self._normalise(images).contiguous(memory_format=self._memory_format)
