"""Crops of a batch resized as PIL resizes them, in two batched matrix products."""

from __future__ import annotations

import torch
from torch import Tensor

from bort._precision import own_precision
from bort.augment._constant import constant
from bort.augment._crop import CropBoxes

_WEIGHT_BITS = 16
_MIDDLE = 128


def resized_crops(images: Tensor, boxes: CropBoxes, size: int) -> Tensor:
    """(B, C, size, size) in uint8 out of images (B, C, H, W) in uint8.

    As in PIL, rows are resized first, then columns, with a rounding to 8 bits after each (see `crop_with_pil`). PIL rounds
    weights to 22 bits. With 16 bits, and levels counted from the middle of their range, all sums are exact in float32: the
    result does not depend on the order of summation. Another device may round a weight differently, and a pixel in thousands.

    Example:
        >>> keys = augment.image_keys(7, torch.arange(4))  # 7 stands for (seed, epoch)
        >>> images = torch.full((4, 3, 32, 32), 200, dtype=torch.uint8)
        >>> augment.resized_crops(images, augment.crop_boxes(keys, 32, 32), 24).unique()
        tensor([200], dtype=torch.uint8)
    """
    batch, channels, height, width = images.shape
    weights = _weights(boxes, size, max(height, width))
    across, down = weights[0, :, :, :width], weights[1, :, :, :height]
    rows = images.permute(0, 2, 1, 3).to(torch.float32, memory_format=torch.contiguous_format).sub_(_MIDDLE)
    with own_precision("highest", images.device):
        rows = _eight_bits(rows.view(batch, height * channels, width), across.mT)
        columns = _eight_bits(down, rows.view(batch, height, channels * size))
    columns = columns.add_(_MIDDLE).view(batch, size, channels, size).permute(0, 2, 1, 3)
    return columns.to(torch.uint8, memory_format=torch.contiguous_format)


def _weights(boxes: CropBoxes, size: int, extent: int) -> Tensor:
    """(2, B, size, extent), for rows and for columns: row o holds what each of ``extent`` pixels adds to pixel o of the
    result, in parts of 2¹⁶; 0 outside the crop.

    A crop of length l is scaled by l / size. The filter, a triangle or a cubic, is centred at c = (o + ½) l / size and
    stretched by s = max(1, l / size), and the weight of pixel i is K(|i + ½ − c| / s), divided by the sum of the row. With
    p = max(0, 1 − t) and q = max(0, 2 − t) the filters are

        triangle  K(t) = p
        cubic     K(t) = ½ q² (q − 1) + p² (1 − 2p)        Keys' cubic convolution with a = −½, without its cases
    """
    device = boxes.left.device
    start = torch.stack((boxes.left, boxes.top)).float()[..., None]
    length = torch.stack((boxes.width, boxes.height)).float()[..., None]
    scale = length / size
    place = torch.arange(size, device=device) + 0.5
    offset = place * scale
    offset[0] = torch.where(boxes.flip[:, None], length[0] - offset[0], offset[0])
    centre = (start + offset)[..., None]
    pixel = torch.arange(extent, device=device) + 0.5
    distance = (pixel - centre).abs_().div_(scale.clamp(min=1)[..., None])
    p, q = (1 - distance).clamp_(min=0), (2 - distance).clamp_(min=0)
    cube = (q * q).mul_(q - 1).mul_(0.5).add_((p * p).mul_(1 - 2 * p))
    inside = (pixel > start) & (pixel < start + length)
    weights = torch.where(boxes.cubic[:, None, None], cube, p).mul_(inside[:, :, None])
    total = weights.sum(-1, keepdim=True, dtype=torch.float64).float()  # the same in any order
    return weights.div_(total).mul_(2**_WEIGHT_BITS).round_()


def _eight_bits(a: Tensor, b: Tensor) -> Tensor:
    """a @ b / 2¹⁶, rounded to whole levels, halves upwards, as PIL does."""
    half = constant((0.5,), torch.float32, a.device)
    sums = torch.baddbmm(half, a, b, alpha=2.0**-_WEIGHT_BITS)
    return sums.floor_().clamp_(-_MIDDLE, _MIDDLE - 1)
