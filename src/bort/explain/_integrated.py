r"""Integrated Gradients (Sundararajan et al. 2017), by captum.

:math:`(x - x') \int_0^1 \nabla l_t (x' + \alpha (x - x')) \, d\alpha`, colours added up; all places together give
:math:`l_t(x) - l_t(x')` (completeness).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bort._modes import evaluating, outputs_of
from bort.explain._common import Progress, Target, at_once, check_images, classes_of


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
        progress: called after each image; see :data:`Progress`.
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
    chunk = at_once(model, x, backward=True)
    with evaluating(model):
        method = IntegratedGradients(lambda images: outputs_of(model, images))
        maps = []
        for n in range(len(x)):
            start = baseline[n : n + 1] if isinstance(baseline, Tensor) else baseline
            found = method.attribute(x[n : n + 1], start, int(classes[n]), n_steps=steps, internal_batch_size=chunk)
            maps.append(found.detach() if by_colour else found.detach().sum(dim=1))
            if progress is not None:
                progress(n + 1, len(x))
    return torch.cat(maps)
