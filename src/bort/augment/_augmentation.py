"""The training images of a batch, from bytes to normalised numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bort.augment._constant import constant
from bort.augment._crop import CropBoxes, crop_boxes
from bort.augment._draws import Stream, uniforms, view_keys
from bort.augment._erase import ERASE_DRAWS, NOISE, erase
from bort.augment._jitter import JITTER_DRAWS, jittered
from bort.augment._randaugment import RandAugment
from bort.augment._resize import resized_crops


class Augmentation:
    """Random resized crop and flip; RandAugment or colour jitter; normalisation; erasing. In distribution it does what
    timm's ``create_transform(is_training=True, interpolation="random", re_mode="pixel")`` does, in batches and on any device.

    Every image has its own draw, which depends on its key alone (`image_keys`). Calls have fixed shapes and never wait for
    the device, so they can be captured in a CUDA graph after one call outside of it, which makes the constants.

    With splits there are several views of each image. All share the crop; the first is neither augmented nor erased.

    Args:
        size: of the sides of the result
        mean, std: of the channels (1 or 3), for values from 0 to 1. Geometric ops fill with the mean.
        randaugment: in timm's notation, such as rand-m9-mstd0.5; "": none
        color_jitter: strength of changes of brightness, contrast and saturation. As in timm, only without RandAugment.
        erase: the probability that a part of an image is erased
        splits: number of views, 2 or more; 0: one view, augmented

    Example:
        >>> keys = augment.image_keys(7, torch.arange(4))  # 7 stands for (seed, epoch)
        >>> augmentation = augment.Augmentation(24, (0.5,) * 3, (0.25,) * 3, randaugment="rand-m9-mstd0.5", erase=0.25)
        >>> images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
        >>> x = augmentation(images, keys)
        >>> x.shape, torch.equal(x[2:], augmentation(images[2:], keys[2:]))  # an image's draw does not depend on its batch
        (torch.Size([4, 3, 24, 24]), True)
    """

    def __init__(
        self,
        size: int,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        randaugment: str = "",
        color_jitter: float = 0.0,
        erase: float = 0.0,
        splits: int = 0,
    ) -> None:
        if len(mean) not in (1, 3) or len(std) != len(mean):
            raise ValueError(f"mean={tuple(mean)}, std={tuple(std)}: both need 1 value, or 3")
        if splits == 1 or splits < 0:
            raise ValueError(f"splits={splits}: 0, or 2 and more")
        if color_jitter < 0:
            raise ValueError(f"color_jitter={color_jitter} is negative")
        if not 0 <= erase <= 1:
            raise ValueError(f"erase={erase}: a probability is from 0 to 1")
        if erase and len(mean) * size**2 > NOISE:
            raise ValueError(f"size={size}: erasing has noise for {NOISE} values, {len(mean) * size**2} are needed")
        self.size = size
        self.views = max(1, splits)
        self._mean, self._std = tuple(mean), tuple(std)
        fill = tuple(min(255, round(255 * m)) for m in mean)
        self._randaugment = RandAugment(randaugment, fill) if randaugment else None
        self._color_jitter = 0.0 if randaugment else color_jitter
        self._erase = erase
        self._draws = {}
        if self._randaugment is not None:
            self._draws[Stream.RANDAUGMENT] = self._randaugment.draws
        if self._color_jitter:
            self._draws[Stream.JITTER] = JITTER_DRAWS
        if erase:
            self._draws[Stream.ERASE] = ERASE_DRAWS

    def boxes(self, keys: Tensor, heights: Tensor | int, widths: Tensor | int) -> CropBoxes:
        """Where images of these sizes are cropped; see `crop_boxes`."""
        return crop_boxes(keys, heights, widths)

    def __call__(
        self, images: Tensor, keys: Tensor, memory_format: torch.memory_format = torch.contiguous_format
    ) -> Tensor:
        """(views · B, C, size, size) in float32 out of images (B, C, H, W) in uint8 with keys (B,): all first views, then all
        second ones …, as timm's JSD loss expects them."""
        self._check(images, keys)
        crops = resized_crops(images, self.boxes(keys, *images.shape[2:]), self.size)
        return self.finish(crops, keys, memory_format)

    def finish(
        self, crops: Tensor, keys: Tensor, memory_format: torch.memory_format = torch.contiguous_format
    ) -> Tensor:
        """The same for crops (B, C, size, size) in uint8 that have been made already, such as by `crop_with_pil`."""
        self._check(crops, keys)
        images = crops.repeat(self.views, 1, 1, 1)
        clean = len(crops) if self.views > 1 else 0
        draws: dict[Stream, Tensor] = {}
        if self._draws:
            first = 1 if clean else 0
            draws = uniforms(view_keys(keys, first, self.views - first), self._draws)
        if self._randaugment is not None:
            self._randaugment(images[clean:], self._randaugment.choose(draws[Stream.RANDAUGMENT]))
        if self._color_jitter:
            images[clean:] = jittered(images[clean:], draws[Stream.JITTER], self._color_jitter)
        result = self._normalised(images.contiguous(memory_format=memory_format))
        if self._erase:
            erase(result[clean:], draws[Stream.ERASE], self._erase)
        return result

    def _normalised(self, images: Tensor) -> Tensor:
        """(x / 255 − mean) / std"""
        scale = constant(tuple(1 / (255 * s) for s in self._std), torch.float32, images.device)
        shift = constant(tuple(-m / s for m, s in zip(self._mean, self._std)), torch.float32, images.device)
        return (images * scale[:, None, None]).add_(shift[:, None, None])

    def _check(self, images: Tensor, keys: Tensor) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != len(self._mean):
            raise ValueError(
                f"images are {tuple(images.shape)} in {images.dtype}: (B, {len(self._mean)}, H, W) in uint8 are expected"
            )
        if keys.shape != images.shape[:1] or keys.dtype != torch.int64:
            raise ValueError(f"keys are {tuple(keys.shape)} in {keys.dtype}: ({len(images)},) in int64 are expected")
