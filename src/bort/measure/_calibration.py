r"""Calibration: whether a network that is 80% sure is right 80% of the time.

The confidence of an image is the largest of its probabilities. Images are put into bins by it, and the expected calibration
error (Naeini et al. 2015, Guo et al. 2017) is

.. math:: \sum_b \frac{n_b}{n} \, | \mathrm{accuracy}_b - \mathrm{confidence}_b |.

It depends on the number of bins and, for few images, on chance: a calibrated network's is above 0. The negative
log-likelihood has neither weakness, but measures accuracy as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from bort.measure._labels import checked_decisions, checked_labels


@dataclass(frozen=True)
class Calibration:
    """How confident a network is and how often it is right, in bins of equal width: bin b of B has the images with a
    confidence above b / B, up to and including (b + 1) / B.

    Example:
        >>> found = measure.calibration(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]), bins=2)
        >>> found.counts, found.error  # 50% sure and right in half of the cases
        (tensor([4, 0]), 0.0)
    """

    error: float
    """The expected calibration error, from 0 to 1."""
    negative_log_likelihood: float
    """Of the true classes, in nats: the mean cross-entropy."""
    confidence: Tensor
    """(B,): the mean confidence of each bin's images; nan if it has none."""
    accuracy: Tensor
    """(B,): the part of each bin's images that is recognised; nan if it has none."""
    counts: Tensor
    """(B,): how many images each bin has."""


@torch.no_grad()
def calibration(logits: Tensor, labels: Tensor, bins: int = 15, *, multi_label: bool = False) -> Calibration:
    """The calibration of a network from its logits (N, classes) for images with the true classes ``labels`` (N,).

    Everything is computed in float64, and returned on the CPU. If several logits of an image are the largest, the image
    counts as recognised in part: see :func:`bort.train.recognised`.

    With ``multi_label`` an image may have several classes, and labels are (N, classes): 1 for each class that it has, 0 for
    the others. Each logit is then a decision of its own, yes with the probability sigmoid(logit), and the decisions take the
    place of the images. A head with a single logit is measured so, with labels (N, 1).

    Example:
        >>> logits = torch.tensor([[100.0, 0.0], [100.0, 0.0]])  # sure of class 0, and right once
        >>> measure.calibration(logits, torch.tensor([0, 1])).error
        0.5
    """
    from bort.train import recognised  # here: an audit should not load the training loop

    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        raise TypeError(
            f"the logits must be a tensor of floating-point numbers, not {getattr(logits, 'dtype', type(logits).__name__)}"
        )
    if not logits.ndim or not len(logits):
        raise ValueError(f"logits of shape {tuple(logits.shape)}: there are no images to measure")
    if not torch.isfinite(logits).all():
        raise ValueError("the logits have NaN or Inf in them: a network that has diverged has no calibration")
    if bins < 1:
        raise ValueError(f"bins={bins}: must be 1 or more")
    if multi_label:
        labels = checked_decisions(labels, logits).flatten()
        logits = torch.stack([torch.zeros_like(logits), logits], dim=-1).flatten(0, 1)
    labels = checked_labels(labels, len(logits), logits)
    logits = logits.double()
    confidence, correct = logits.softmax(dim=1).amax(dim=1).cpu(), recognised(logits, labels).cpu()
    inner_edges = torch.arange(1, bins, dtype=torch.float64) / bins
    places = torch.bucketize(confidence, inner_edges)
    counts = places.bincount(minlength=bins)
    confidences, accuracies = (_sums(values, places, bins) / counts for values in (confidence, correct))
    gaps = (accuracies - confidences).abs().nan_to_num(nan=0.0)  # a bin without images has the weight 0
    return Calibration(
        error=(counts * gaps).sum().item() / len(logits),
        negative_log_likelihood=F.cross_entropy(logits, labels).item(),
        confidence=confidences,
        accuracy=accuracies,
        counts=counts,
    )


def _sums(values: Tensor, places: Tensor, bins: int) -> Tensor:
    """(bins,): the sum of the values in each place."""
    return values.new_zeros(bins).index_add(0, places, values)
