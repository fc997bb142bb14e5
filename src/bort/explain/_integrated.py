r"""Integrated Gradients (Sundararajan et al. 2017), by captum.

:math:`(x - x') \int_0^1 \nabla l_t (x' + \alpha (x - x')) \, d\alpha`, colours added up; all places together give
:math:`l_t(x) - l_t(x')` (completeness).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bort._inspect import Progress, Target, check_images, classes_of, evaluating, images_at_once, outputs_of

_WATCHED = 4  # steps in a pass on a CPU while somebody watches: small passes cost hardly more there, and take a while


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
        target: the class to explain; what the model says by default.
        steps: points of the Gauss–Legendre quadrature between baseline and image.
        baseline: where the path begins, a number, an image, or one for each: 0 is the mean colour of normalised images.
        by_colour: leave the colours apart: (N, C, H, W).
        progress: called after some steps, with how many of those of all images are done; see :data:`Progress`.
    """
    try:
        from captum.attr import IntegratedGradients
    except ImportError:
        raise ImportError('Integrated Gradients come from captum: pip install "bort[explain]"') from None
    check_images(model, x)
    if steps < 1:
        raise ValueError(f"steps={steps}: must be 1 or more")
    if isinstance(baseline, Tensor):
        if baseline.shape not in (x.shape, x.shape[1:], (1, *x.shape[1:])):
            raise ValueError(
                f"baseline of shape {tuple(baseline.shape)}: give a number, an image, or one for each of {len(x)}"
            )
        baseline = baseline.to(x).expand_as(x)
    classes = classes_of(model, x, target)
    chunk = images_at_once(model, x, backward=True)
    with evaluating(model):
        method = IntegratedGradients(lambda images: outputs_of(model, images))
        if progress is not None:
            few = _WATCHED if x.device.type == "cpu" else chunk
            method.gradient_func = _watched(method.gradient_func, few, progress, steps * len(x))
        maps = []
        for n in range(len(x)):
            start = baseline[n : n + 1] if isinstance(baseline, Tensor) else baseline
            found = method.attribute(x[n : n + 1], start, int(classes[n]), n_steps=steps, internal_batch_size=chunk)
            maps.append(found.detach() if by_colour else found.detach().sum(dim=1))
    return torch.cat(maps)


def _watched(gradients: Callable[..., Any], size: int, progress: Progress, total: int) -> Callable[..., Any]:
    """captum's gradients at many steps, computed in passes of about that size, with progress told after each. What captum
    adds up is as many steps at once as before: the sum is rounded as without."""
    done = 0

    def watched(forward_fn: Any, inputs: tuple[Tensor], target_ind: Any, **_: Any) -> tuple[Tensor]:
        nonlocal done
        found: list[Tensor] = []
        # Evenly, so that none is left alone: torch multiplies by a single row in another way, and rounds it differently.
        for few in inputs[0].detach().tensor_split(max(1, len(inputs[0]) // size)):
            found += gradients(forward_fn, (few.requires_grad_(),), target_ind)
            done += len(few)
            progress(done, total)
        return (torch.cat(found),)

    return watched
