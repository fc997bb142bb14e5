"""Random resized crops and flips: timm's RandomResizedCropAndInterpolation and RandomHorizontalFlip."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from bort.augment._boxes import BOX_DRAWS, Boxes, random_boxes
from bort.augment._constant import constant
from bort.augment._draws import Stream, uniform

if TYPE_CHECKING:
    from PIL.Image import Image

_AREAS = (0.08, 1.0)
_WIDEST = 4 / 3


class CropBoxes(NamedTuple):
    """Which part of each image is cropped, and how it is resized; (B,) each.

    Example:
        >>> keys = augment.image_keys(7, torch.arange(4))  # 7 stands for (seed, epoch)
        >>> boxes = augment.crop_boxes(keys, 32, 48)
        >>> bool((boxes.left + boxes.width <= 48).all()), boxes.flip.dtype
        (True, torch.bool)
    """

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    cubic: Tensor
    """True: bicubic; False: bilinear."""
    flip: Tensor
    """True: mirrored."""


def crop_boxes(keys: Tensor, heights: Tensor | int, widths: Tensor | int) -> CropBoxes:
    """The crops of images with these keys (B,). Heights and widths are tensors (B,), or one number each for all images.

    8 to 100 % of the image's area, width : height from 3:4 to 4:3; bicubic or bilinear, mirrored or not, with equal chances.
    If none of ten attempts fits, which only long images cause, the largest central part within these ratios is taken.

    Example:
        >>> keys = augment.image_keys(7, torch.arange(4))  # 7 stands for (seed, epoch)
        >>> boxes = augment.crop_boxes(keys, 32, 32)
        >>> bool((boxes.height * boxes.width >= 0.08 * 32 * 32 * 0.9).all())  # 8% of the area, up to whole pixels
        True
    """
    if isinstance(heights, Tensor) and isinstance(widths, Tensor):
        sides = torch.stack((heights, widths), 1).double()
    else:
        sides = constant(((heights, widths),), torch.float64, keys.device)
    u = uniform(keys, Stream.CROP, BOX_DRAWS + 2)
    drawn, found = random_boxes(u[:, :BOX_DRAWS], sides, areas=_AREAS, widest=_WIDEST, margin=0)
    size = torch.minimum(sides, (sides.flip(1) * _WIDEST).round())
    central = Boxes(((sides - size) / 2).floor(), size)
    corner, size = (torch.where(found[:, None], a, b).long() for a, b in zip(drawn, central))
    return CropBoxes(corner[:, 0], corner[:, 1], size[:, 0], size[:, 1], cubic=u[:, -2] < 0.5, flip=u[:, -1] < 0.5)


def crop_with_pil(image: Image, box: CropBoxes, size: int) -> Tensor:
    """(C, size, size) in uint8: the crop of one PIL image, in mode L or RGB. ``box`` holds one box.

    The same as `resized_crops` does for a batch, to one level (seldom two) in at most two of a hundred pixels. Rows and
    columns are resized in two calls, rows first: in one call Pillow, from version 13 on, begins with whichever takes less
    time, and the rounding in between makes a fifth of the pixels one level lighter or darker.

    Example:
        >>> from PIL import Image
        >>> boxes = augment.crop_boxes(augment.image_keys(7, torch.arange(1)), 48, 32)
        >>> augment.crop_with_pil(Image.new("RGB", (32, 48)), boxes, 24).shape
        torch.Size([3, 24, 24])
    """
    import numpy as np
    from PIL.Image import Resampling, Transpose

    top, left, height, width, cubic, flip = (int(value) for value in box)
    part = image.crop((left, top, left + width, top + height))
    resampling = Resampling.BICUBIC if cubic else Resampling.BILINEAR
    part = part.resize((size, height), resampling).resize((size, size), resampling)
    if flip:
        part = part.transpose(Transpose.FLIP_LEFT_RIGHT)
    pixels = torch.from_numpy(np.array(part))
    return pixels.reshape(size, size, -1).permute(2, 0, 1).contiguous()
