"""Ops that change each pixel by its value alone: a table of 256 bytes for each image and channel, with PIL's arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor

from bort.augment._constant import constant

PARAMETERS = {"threshold": 256.0, "add": 0.0, "pivot": 0.0, "factor": 1.0, "bits": 8.0}
"""Of `plain_tables`, with the values that leave an image as it is."""


def plain_tables(parameters: Tensor) -> Tensor:
    """(…, 1, 256) in float32, out of `PARAMETERS` (…, 5): tables that do not depend on the image.

    v below the threshold becomes v + add, any other pivot + factor · (v − pivot); the result is clipped to 0 … 255 and its
    lowest 8 − bits bits are cleared. Brightness, Invert, Posterize, Solarize and SolarizeAdd are special cases. Fewer than
    one bit gives black, as in older versions of Pillow; newer ones refuse to posterize to 0 bits, which timm asks for.
    """
    threshold, add, pivot, factor, bits = parameters[..., None].unbind(-2)
    level = _levels(torch.float32, parameters.device)
    value = torch.where(level < threshold, level + add, (level - pivot) * factor + pivot).clamp_(0, 255)
    steps = constant((256.0, 128.0, 64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0), torch.float32, value.device)
    step = steps[bits.clamp(0, 8).long()]
    return (value / step).floor_().mul_(step)[..., None, :]


def through_tables(images: Tensor, tables: Tensor, autocontrast: Tensor, equalize: Tensor) -> Tensor:
    """Images (n, C, H, W) in uint8 through tables (n, C, 256) in uint8, some of which are overwritten.

    Where ``autocontrast`` or ``equalize`` (k,) holds, the table becomes the one that the image's own histogram gives. Both
    are about the first k images only, since histograms are slow.
    """
    values = images.flatten(2).long()
    if len(equalize):
        first, own = images[: len(equalize)].flatten(2), tables[: len(equalize)]
        lowest, highest = first.aminmax(dim=2, keepdim=True)
        table = torch.where(equalize[:, None, None], _equalized(values[: len(equalize)], highest), own)
        own.copy_(torch.where(autocontrast[:, None, None], _stretched(lowest, highest), table))
    return tables.gather(2, values).view_as(images)


def _equalized(values: Tensor, highest: Tensor) -> Tensor:
    """PIL's equalize: v becomes (step // 2 + pixels below v) // step, where step is a 255th of the pixels that are not of
    the highest value; nothing changes where that is 0."""
    one = constant((1,), torch.int32, values.device).expand_as(values)
    counts = torch.zeros((*values.shape[:2], 256), dtype=torch.int32, device=values.device).scatter_add_(2, values, one)
    below = counts.cumsum(2, dtype=torch.int32) - counts
    step = below.gather(2, highest.long()) // 255
    table = ((below + step // 2) // step.clamp(min=1)).clamp_(max=255)
    return torch.where(step > 0, table, _levels(torch.int32, values.device))


def _stretched(lowest: Tensor, highest: Tensor) -> Tensor:
    """PIL's autocontrast in float64: the lowest value becomes 0, the highest 255; to be rounded down. Entries for values that
    do not occur are arbitrary.

    float64 is PIL's: where 255 (v − lowest) / (highest − lowest) is a whole number, the rounding of scale and offset
    decides which side of it the result falls on. (torch computes number / tensor as the product with a rounded reciprocal.)
    """
    level = _levels(torch.float64, lowest.device)
    span = highest - lowest
    scale = constant((255.0,), torch.float64, span.device) / span
    return torch.where(span > 0, (level * scale).sub_(lowest * scale), level)


def _levels(dtype: torch.dtype, device: torch.device) -> Tensor:
    return constant(tuple(range(256)), dtype, device)
