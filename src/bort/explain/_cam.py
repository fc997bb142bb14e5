r"""Class activation maps (Zhou et al. 2016), for heads that pool by average or by maximum, and beyond.

With a linear head on pooled channels :math:`A = \sum_c w_{tc} Z_c`. The weight is the sum over all places of the logit's
derivative, :math:`w_{tc} = \sum_p \partial l_t / \partial Z_{cp}`: average pooling spreads the derivative evenly, maximum
pooling has it at one place, and the sum is the same. It is computed by that sum, so networks with other heads (ACNN-Base,
whose classes are channels; ViT) get a map as well.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bort._inspect import Target, check_images, classes_of, finite, precise, widened
from bort.explain._layers import top_layer
from bort.invert import Backtracker


def cam(model: nn.Module, x: Tensor, target: Target = None, *, layer: str | None = None) -> Tensor:
    """Class activation maps (N, H, W), interpolated to the images' size.

    Args:
        model, x: any torch model and a batch of images.
        target: the class to explain; the predicted one by default.
        layer: the layer whose map is weighted; by default the last one whose places have a part in the logit.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3))
        >>> x = torch.zeros(1, 1, 4, 4)
        >>> x[0, 0, 1, 2] = 1
        >>> (explain.cam(model, x)[0] != explain.cam(model, x)[0, 0, 0]).nonzero()  # only one place differs
        tensor([[1, 2]])
    """
    check_images(model, x)
    model, x = precise(model), widened(x)
    name = layer or top_layer(model, x, deciding=True)
    back = Backtracker(model, name, "gradient")
    classes = classes_of(model, x, target)
    batches = back.batches(x)
    maps = []
    for batch, targets in zip(batches, torch.split(classes, [len(batch) for batch in batches]), strict=True):
        trace = back.trace(batch)
        weights = trace.slope(targets).sum(dim=(2, 3))
        maps.append(torch.einsum("nc,nchw->nhw", weights, trace.maps))
    small = finite(torch.cat(maps), "the maps")
    return F.interpolate(small[:, None], x.shape[-2:], mode="bilinear", align_corners=False)[:, 0]
