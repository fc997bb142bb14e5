r"""Guided Integrated Gradients (Kapishnikov et al. 2021), a batch at a time.

Integrated Gradients along a path that avoids steep regions: in each of n steps the L1 distance to the image must shrink by
1/n, and the features of smallest derivative move first, none of them further than ``distance`` from the straight line.

The published code takes one image at a time. Here all images of a batch go together, each along its own path.

It also differs where the baseline is a singular point. At an image of zeros a LayerNorm without biases before it sees zeros
and divides by √ε: in an untrained ConvNeXt the derivative there is 1e11 times the one a step further on, and the published
code weights its first step with it. Here the first step of such an image takes the derivative at the end of a straight first
step, both to choose the features that move and to weight them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bort._inspect import (
    Progress,
    Target,
    check_images,
    classes_of,
    evaluating,
    finite,
    images_at_once,
    precise,
    slopes,
    widened,
)

_CLOSE = 1e-9  # relative and absolute: distances that differ by less count as equal
_SINGULAR = 100.0
"""The baseline is singular if the gradient's norm there is more than this many times the one after a straight first step, or
not finite. Below that the first of 200 steps weighs less than the other 199 together."""


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

    The same numbers as PAIR's ``saliency`` package, except for images whose gradient at the baseline has more than 100 times
    the norm of the one a step further on (or is not finite): their first step takes the latter.

    Args:
        model, x: any torch model and a batch of images.
        target: the class to explain; the predicted one by default.
        steps: of the path.
        fraction: part of the features, those of smallest derivative, that move first.
        distance: how far a feature may be ahead of or behind the straight line; 0 is Integrated Gradients, 1 is free.
        baseline: where the path begins: 0 is the mean colour of normalised images.
        progress: called after each step; see :data:`Progress`.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> classes = model(x).argmax(dim=1)
        >>> maps = explain.guided_ig(model, x, steps=50)
        >>> gained = model(x)[[0, 1], classes] - model(0 * x)[[0, 1], classes]
        >>> torch.allclose(maps.sum(dim=(1, 2)), gained, atol=0.02)  # all pixels together make up the logit
        True
    """
    check_images(model, x)
    if steps < 1 or not 0 <= fraction <= 1 or not 0 <= distance <= 1:
        raise ValueError(
            f"steps={steps}, fraction={fraction}, distance={distance}: 1 or more steps, the others from 0 to 1"
        )
    model, x = precise(model), widened(x)
    classes = classes_of(model, x, target)
    size = images_at_once(model, x, backward=True)
    batches = math.ceil(len(x) / size)
    maps = []
    with evaluating(model):
        for number, (images, targets) in enumerate(zip(torch.split(x, size), torch.split(classes, size), strict=True)):
            path = _Path(images, baseline, fraction, distance)
            for step in range(steps):
                gradients = slopes(model, path.images(), targets).flatten(1).double()
                if step == 0:
                    ahead = slopes(model, path.straight(1 / steps), targets).flatten(1).double()
                    gradients = torch.where(_singular(gradients, ahead)[:, None], ahead, gradients)
                path.move(gradients, step, steps)
                if progress is not None:
                    progress(number * steps + step + 1, batches * steps)
            maps.append(path.attributions.view_as(images).sum(dim=1).to(x.dtype))
    return finite(torch.cat(maps), "the maps")


def _singular(gradients: Tensor, ahead: Tensor) -> Tensor:
    """(N,): whether the gradients at the baseline are out of proportion to those a step further on. A gradient of 0 there
    says nothing: the logit is flat from there on, as behind closed ReLUs."""
    norms, next_norms = gradients.norm(dim=1), ahead.norm(dim=1)
    singular: Tensor = ~torch.isfinite(norms) | ((norms > _SINGULAR * next_norms) & (next_norms > 0))
    return singular


class _Path:
    """The point that each image of a batch has reached on its path from the baseline, and the attributions up to there; in
    float64, as the published code computes."""

    def __init__(self, images: Tensor, baseline: float, fraction: float, distance: float) -> None:
        self._shape, self._dtype = images.shape, images.dtype
        self._end = images.detach().flatten(1).double()
        self._start = torch.full_like(self._end, baseline)
        self._way = self._end - self._start
        self._length = self._way.abs().sum(dim=1)
        self._point = self._start.clone()
        self._fraction, self._distance = fraction, distance
        self.attributions = torch.zeros_like(self._end)

    def images(self) -> Tensor:
        """The points as images for the model."""
        return self._as_images(self._point)

    def straight(self, part: float) -> Tensor:
        """The points that lie this part of the way along the straight lines, as images for the model."""
        return self._as_images(self._start + self._way * part)

    def _as_images(self, points: Tensor) -> Tensor:
        return points.view(self._shape).to(self._dtype)

    def move(self, gradients: Tensor, step: int, steps: int) -> None:
        """One step: bring each image's L1 distance to its end down to what the step demands."""
        at = (step + 1) / steps
        low, high = max(at - self._distance, 0.0), min(at + self._distance, 1.0)
        lowest, highest = self._start + self._way * low, self._start + self._way * high
        demanded = self._length * (1 - at)
        steepness = gradients.abs()
        index = int(self._fraction * (gradients.shape[1] - 1)) + 1
        moving = self._length > 0
        before = self._point.clone()
        while moving.any():
            progress = torch.where(self._way != 0, (self._point - self._start) / self._way, high)
            behind = (progress < low) & moving[:, None]
            self._point = torch.where(behind, lowest, self._point)
            left = (self._point - self._end).abs().sum(dim=1)
            tolerance = torch.maximum(_CLOSE * torch.maximum(left, demanded), left.new_tensor(_CLOSE))
            moving = moving & ~((left - demanded).abs() <= tolerance)
            if not moving.any():
                break
            steepness = torch.where(self._point == highest, torch.inf, steepness)
            threshold = steepness.kthvalue(index, dim=1, keepdim=True).values
            chosen = (steepness <= threshold) & (steepness < torch.inf) & moving[:, None]
            room = highest - self._point
            reach = (room.abs() * chosen).sum(dim=1)
            # The part of their room that the chosen features need. Above 1 they go as far as they may, and the loop goes on
            # with the next ones.
            part = torch.where(reach > 0, (left - demanded) / reach, torch.inf)
            moved = torch.where(part[:, None] > 1, highest, self._point + room * part[:, None])
            self._point = torch.where(chosen, moved, self._point)
            moving = moving & (part > 1) & (reach > 0)
        self.attributions += (self._point - before) * gradients
