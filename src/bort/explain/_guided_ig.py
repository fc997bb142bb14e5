r"""Guided Integrated Gradients (Kapishnikov et al. 2021), a batch at a time.

Integrated Gradients along a path that keeps away from steep places: at each of n steps the L1 distance to the image must
shrink by 1/n, and it does so in the features of smallest derivative first, none of them further than ``distance`` from the
straight line.

The published code takes one image at a time. Here all images of a batch go together, each on its own path.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bort._inspect import Progress, Target, check_images, classes_of, evaluating, images_at_once, outputs_of

_CLOSE = 1e-9  # relative and absolute: when two distances count as equal


def guided_ig(
    model: nn.Module,
    x: Tensor,
    target: Target = None,
    *,
    steps: int = 200,
    fraction: float = 0.25,
    distance: float = 0.02,
    baseline: float = 0.0,
    progress: Progress | None = None,
) -> Tensor:
    """Saliency maps (N, H, W) by Guided IG of the target's logit.

    Args:
        model, x: any torch model and a batch of images.
        target: the class to explain; what the model says by default.
        steps: of the path.
        fraction: part of the features, those of smallest derivative, that move first.
        distance: how far a feature may be ahead of or behind the straight line; 0 is Integrated Gradients, 1 is free.
        baseline: where the path begins: 0 is the mean colour of normalised images.
        progress: called after each step; see :data:`Progress`.
    """
    check_images(model, x)
    if steps < 1 or not 0 <= fraction <= 1 or not 0 <= distance <= 1:
        raise ValueError(
            f"steps={steps}, fraction={fraction}, distance={distance}: 1 or more steps, the others from 0 to 1"
        )
    classes = classes_of(model, x, target)
    size = images_at_once(model, x, backward=True)
    batches = math.ceil(len(x) / size)
    maps = []
    with evaluating(model):
        for number, (images, chosen) in enumerate(zip(torch.split(x, size), torch.split(classes, size), strict=True)):
            path = _Path(images, baseline, fraction, distance)
            for step in range(steps):
                path.move(_slopes(model, path.images(), chosen), step, steps)
                if progress is not None:
                    progress(number * steps + step + 1, batches * steps)
            maps.append(path.attributions.view_as(images).sum(dim=1).to(x.dtype))
    return torch.cat(maps)


def _slopes(model: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
    leaf = images.detach().requires_grad_()
    with torch.enable_grad():
        told = outputs_of(model, leaf).gather(1, classes[:, None]).sum()
        (slopes,) = torch.autograd.grad(told, leaf)
    return slopes.flatten(1).double()


class _Path:
    """Where each image of a batch is on its way from the baseline, and what its features have earned; in float64."""

    def __init__(self, images: Tensor, baseline: float, fraction: float, distance: float) -> None:
        self._shape, self._dtype = images.shape, images.dtype
        self._end = images.detach().flatten(1).double()
        self._start = torch.full_like(self._end, baseline)
        self._way = self._end - self._start
        self._length = self._way.abs().sum(dim=1)
        self._here = self._start.clone()
        self._fraction, self._distance = fraction, distance
        self.attributions = torch.zeros_like(self._end)

    def images(self) -> Tensor:
        return self._here.view(self._shape).to(self._dtype)

    def move(self, slopes: Tensor, step: int, steps: int) -> None:
        """One step: shorten each image's distance to the length that is due."""
        at = (step + 1) / steps
        low, high = max(at - self._distance, 0.0), min(at + self._distance, 1.0)
        lowest, highest = self._start + self._way * low, self._start + self._way * high
        due = self._length * (1 - at)
        steepness = slopes.abs()
        index = int(self._fraction * (slopes.shape[1] - 1)) + 1
        moving = self._length > 0
        before = self._here.clone()
        while moving.any():
            progress = torch.where(self._way != 0, (self._here - self._start) / self._way, high)
            behind = (progress < low) & moving[:, None]
            self._here = torch.where(behind, lowest, self._here)
            left = (self._here - self._end).abs().sum(dim=1)
            there = (left - due).abs() <= torch.maximum(_CLOSE * torch.maximum(left, due), left.new_tensor(_CLOSE))
            moving = moving & ~there
            if not moving.any():
                break
            steepness = torch.where(self._here == highest, torch.inf, steepness)
            least = steepness.kthvalue(index, dim=1, keepdim=True).values
            chosen = (steepness <= least) & (steepness < torch.inf) & moving[:, None]
            room = highest - self._here
            reach = (room.abs() * chosen).sum(dim=1)
            # How far the chosen features go: all the way if that is not enough, and the next ones follow.
            part = torch.where(reach > 0, (left - due) / reach, torch.inf)
            self._here = torch.where(
                chosen, torch.where(part[:, None] > 1, highest, self._here + room * part[:, None]), self._here
            )
            moving = moving & (part > 1) & (reach > 0)
        self.attributions += (self._here - before) * slopes
