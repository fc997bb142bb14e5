r"""Integrated Gradients (Sundararajan et al. 2017), by captum.

:math:`(x - x') \int_0^1 \nabla l_t (x' + \alpha (x - x')) \, d\alpha`, summed over the colours. The sum over all places is
:math:`l_t(x) - l_t(x')` (completeness).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    outputs_of,
    precise,
    slopes,
    widened,
)

_STEPS_PER_CALL = 4
"""Steps in a pass on a CPU if there is a progress function: such small passes take hardly longer there, and a large one would
leave the progress bar standing for seconds."""


def integrated_gradients(
    model: nn.Module,
    x: Tensor,
    target: Target = None,
    *,
    steps: int = 50,
    baseline: Tensor | float = 0.0,
    by_colour: bool = False,
    progress: Progress | None = None,
) -> Tensor:
    """Saliency maps (N, H, W) by Integrated Gradients of the target's logit.

    Args:
        model, x: any torch model and a batch of images.
        target: the class to explain; the predicted one by default.
        steps: points of the Gauss–Legendre quadrature between baseline and image.
        baseline: where the path begins, a number, an image, or one for each: 0 is the mean colour of normalised images.
        by_colour: do not sum over the colours: (N, C, H, W).
        progress: called after a few steps, with the number of steps done of those of all images; see :data:`Progress`.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> classes = model(x).argmax(dim=1)
        >>> maps = explain.integrated_gradients(model, x)
        >>> gained = model(x)[[0, 1], classes] - model(0 * x)[[0, 1], classes]
        >>> torch.allclose(maps.sum(dim=(1, 2)), gained, atol=0.02)  # all pixels together make up the logit
        True
    """
    try:
        from captum.attr import IntegratedGradients
    except ImportError:
        raise ImportError('Integrated Gradients come from captum: pip install "bort[explain]"') from None
    check_images(model, x)
    if steps < 1:
        raise ValueError(f"steps={steps}: must be 1 or more")
    model, x = precise(model), widened(x)
    if isinstance(baseline, Tensor):
        if baseline.shape not in (x.shape, x.shape[1:], (1, *x.shape[1:])):
            raise ValueError(
                f"baseline of shape {tuple(baseline.shape)}: give a number, an image, or one for each of {len(x)}"
            )
        baseline = baseline.to(x).expand_as(x)
    classes = classes_of(model, x, target)
    at_once = images_at_once(model, x, backward=True)
    with torch.inference_mode(False), evaluating(model):
        x = x.detach().clone()  # an ordinary tensor, also if the caller is in inference mode
        method = IntegratedGradients(lambda images: outputs_of(model, images))
        method.gradient_func = _gradients(model)
        if progress is not None:
            size = _STEPS_PER_CALL if x.device.type == "cpu" else at_once
            method.gradient_func = _with_progress(method.gradient_func, size, progress, steps * len(x))
        maps = []
        count = images_in_a_pass(x, steps, at_once)
        for n in range(0, len(x), count):
            images = x[n : n + count]
            start = baseline[n : n + count] if isinstance(baseline, Tensor) else baseline
            attributions = method.attribute(
                images, start, classes[n : n + count], n_steps=steps, internal_batch_size=max(at_once, len(images))
            ).detach()
            maps.append(attributions if by_colour else attributions.sum(dim=1))
    return finite(torch.cat(maps), "the maps")


def images_in_a_pass(x: Tensor, steps: int, at_once: int) -> int:
    """How many images share a pass with all their steps. A GPU waits for its host if a pass is small; on a CPU an image's map
    does not depend, to the last bit, on the images beside it."""
    return 1 if x.device.type == "cpu" else max(1, at_once // steps)


def _gradients(model: nn.Module) -> Callable[..., Any]:
    """In the place of captum's own gradient function, which fails if the logit does not depend on the image."""

    def gradients(forward_fn: Any, inputs: tuple[Tensor], target_ind: Tensor, **_: Any) -> tuple[Tensor]:
        images = inputs[0]
        return (slopes(model, images, target_ind.expand(len(images))),)

    return gradients


def _with_progress(gradients: Callable[..., Any], size: int, progress: Progress, total: int) -> Callable[..., Any]:
    """captum's gradient function for many steps, in passes of about ``size`` steps with a call of ``progress`` after each.
    captum still sums as many steps at once as without progress, so the sum is rounded in the same way."""
    done = 0

    def in_passes(forward_fn: Any, inputs: tuple[Tensor], target_ind: Tensor, **_: Any) -> tuple[Tensor]:
        nonlocal done
        parts: list[Tensor] = []
        # In even parts, so that no pass has a single step: torch multiplies single rows by another kernel, which rounds
        # differently.
        passes, count = max(1, len(inputs[0]) // size), len(inputs[0])
        targets = target_ind.expand(count).tensor_split(passes)
        for images, classes in zip(inputs[0].detach().tensor_split(passes), targets, strict=True):
            parts += gradients(forward_fn, (images,), classes)
            done += len(images)
            progress(done, total)
        return (torch.cat(parts),)

    return in_passes
