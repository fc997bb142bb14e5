"""Mixup and cutmix: timm's Mixup in its mode "batch", with one draw for a batch.

timm mixes image i of a batch with image B − 1 − i. Here images 2k and 2k + 1 are partners, so that partners can stay together
when a batch is divided among processes. As the order of an epoch is random, the distribution is the same.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MIX_DRAWS = 6
"""How many numbers a draw has."""


def mix_draw(seed: int, mixup: float, cutmix: float, size: int) -> Tensor:
    """(MIX_DRAWS,) on the CPU: λ of the labels, λ of the pixels outside the box, and the box: top, bottom, left, right.

    λ is drawn from Beta(α, α). Mixup has an empty box. Cutmix has λ = 1 outside its box, a box of about (1 − λ) of the area,
    and the labels get the share that is left after the box was clipped at the image's border.

    Args:
        mixup, cutmix: α, and 0 for neither; if both are given, one of them is chosen with equal chances
        size: of the image's sides

    Example:
        >>> share, *_ = augment.mix_draw(0, mixup=0.8, cutmix=0.0, size=32)
        >>> 0 <= share <= 1
        tensor(True)
    """
    import numpy as np

    if not mixup and not cutmix:
        raise ValueError("mixup=0, cutmix=0: there is nothing to draw")
    generator = np.random.default_rng(seed)
    is_cutmix = not mixup or (cutmix > 0 and generator.random() < 0.5)
    alpha = cutmix if is_cutmix else mixup
    share = float(generator.beta(alpha, alpha))
    if not is_cutmix:
        return torch.tensor([share, share, 0, 0, 0, 0], dtype=torch.float32)
    side = int(size * math.sqrt(1 - share))
    middle = generator.integers(0, size, 2)
    top, left = (max(0, int(m) - side // 2) for m in middle)
    bottom, right = (min(size, int(m) + (side + 1) // 2) for m in middle)
    share = 1 - (bottom - top) * (right - left) / size**2
    return torch.tensor([share, 1, top, bottom, left, right], dtype=torch.float32)


def mixed(
    images: Tensor, labels: Tensor, draw: Tensor, classes: int, smoothing: float, *, views: int = 1
) -> tuple[Tensor, Tensor]:
    """Each image w · x + (1 − w) · partner, and targets (N, classes) λ · y + (1 − λ) · y of the partner.

    Args:
        images: (N, C, H, W), N = views · B with all images of the first view first; B is even, so partners are of one view
        labels: (N,)
        draw: of `mix_draw`, on the device of the images
        smoothing: part of each label that is spread evenly over all classes

    Example:
        >>> images, labels = torch.stack([torch.zeros(1, 4, 4), torch.ones(1, 4, 4)]), torch.tensor([0, 1])
        >>> draw = augment.mix_draw(0, mixup=0.8, cutmix=0.0, size=4)
        >>> mixture, targets = augment.mixed(images, labels, draw, classes=2, smoothing=0.0)
        >>> torch.allclose(mixture[0, 0, 0, 0], targets[0, 1])  # as much of the partner's image as of its label
        True
    """
    if len(images) % (2 * views):
        raise ValueError(f"{len(images)} images in {views} views: mixing needs an even number of images in each view")
    pairs = torch.unflatten(images, 0, (-1, 2))
    weight = _weight(draw, *images.shape[2:])
    result = torch.empty_like(images)
    halves = torch.unflatten(result, 0, (-1, 2))
    for own, other in ((0, 1), (1, 0)):
        torch.lerp(pairs[:, other], pairs[:, own], weight, out=halves[:, own])
    off = smoothing / classes
    targets = torch.full((len(labels), classes), off, device=images.device)
    targets = torch.unflatten(targets.scatter_(1, labels[:, None], 1 - smoothing + off), 0, (-1, 2))
    return result, torch.lerp(targets.flip(1), targets, draw[0]).flatten(0, 1)


def _weight(draw: Tensor, height: int, width: int) -> Tensor:
    """(H, W): the share of an image's own pixels."""
    _, outside, top, bottom, left, right = draw.unbind()
    y = torch.arange(height, device=draw.device)[:, None]
    x = torch.arange(width, device=draw.device)
    in_box = (y >= top) & (y < bottom) & (x >= left) & (x < right)
    return torch.where(in_box, 0.0, outside)
