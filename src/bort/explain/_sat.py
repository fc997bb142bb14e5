r"""Salient Activation Tracking (paper, algorithm 1).

The k most salient channels of the top map are traced back one by one; each signal becomes a mask, and the map is the sum of
the masks, weighted by how salient their channels are:

.. math:: A = \sum_{i \in I_k} y_i M^i, \qquad M^i = [\, |S^i| > \gamma \max |S^i| \,], \qquad S^i = g(Z^0_i)

The paper binarises "through a given threshold γ" without saying on which scale. Here γ is a part of each signal's own
maximum, so it depends neither on B nor on the network nor on the depth of the layer; colours are summed first.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bort._defaults import SALIENT_CHANNELS, SAT_THRESHOLD
from bort._inspect import Target, check_images, evaluating, outputs_of, precise, targets_of, widened
from bort.explain._layers import top_layer
from bort.invert import Backtracker, Rule, decompose


@dataclass(frozen=True)
class Tracked:
    """The signals of the most salient channels. Maps for other k and γ need no new pass through the network.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> tracked = explain.track(model, x, k=8)
        >>> tracked.map(threshold=0.1).gt(0).sum() >= tracked.map(threshold=0.5).gt(0).sum()
        tensor(True)
    """

    layer: str
    signals: Tensor
    """(N, k, H, W): the absolute value of Sⁱ summed over the colours, each scaled to a maximum of 1 (or 0 everywhere)."""
    values: Tensor
    """(N, k): y, largest first."""

    def map(self, k: int | None = None, threshold: float = SAT_THRESHOLD) -> Tensor:
        """(N, H, W) for the first k channels; all by default."""
        count = self.values.shape[1]
        if k is not None and not 1 <= k <= count:
            raise ValueError(f"k={k}: {count} channels were tracked, choose from 1 to {count}")
        if not 0 <= threshold < 1:
            raise ValueError(f"threshold={threshold}: must be from 0 to below 1, a part of each signal's maximum")
        masks = self.signals[:, :k] > threshold
        return torch.einsum("nk,nkhw->nhw", self.values[:, :k], masks.to(self.values.dtype))


def track(
    model: nn.Module,
    x: Tensor,
    *,
    layer: str | None = None,
    k: int | None = None,
    value: float = 1.0,
    rule: Rule | None = None,
) -> Tracked:
    """Trace the k most salient channels of each image, all of them in one batched backward pass. See :func:`sat`.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> tracked = explain.track(model, x, k=8)
        >>> torch.equal(tracked.map(k=4), explain.sat(model, x, k=4))
        True
    """
    check_images(model, x)
    if value <= 0:
        raise ValueError(f"value={value}: must be above 0; a mask does not depend on how large it is")
    model, x = precise(model), widened(x)
    name = layer or top_layer(model, x)
    decomposition = decompose(model, x, name, _channels(model, x, name, k), value=value, rule=rule)
    signals = decomposition.signals.abs().sum(dim=2)
    largest = signals.amax(dim=(2, 3), keepdim=True)
    return Tracked(name, torch.where(largest > 0, signals / largest, 0.0), decomposition.values)


def _channels(model: nn.Module, x: Tensor, layer: str, k: int | None) -> int:
    """k if it is given, else the paper's 64, or as many channels as the layer has."""
    if k is not None:
        return k
    return min(SALIENT_CHANNELS, Backtracker(model, layer, "gradient").trace(x[:1]).grid.shape[0])


def sat(
    model: nn.Module,
    x: Tensor,
    target: Target = None,
    *,
    layer: str | None = None,
    k: int | None = None,
    value: float = 1.0,
    threshold: float = SAT_THRESHOLD,
    rule: Rule | None = None,
) -> Tensor:
    """Saliency maps (N, H, W) by algorithm 1.

    Args:
        model, x: any torch model and a batch of images.
        target: checked, and otherwise without influence: the algorithm tracks what excites the layer, whatever the class.
        layer: the layer whose map is Z; by default the last one with a map.
        k: how many channels; 64 by default, or all if there are fewer.
        value: the paper's B, above 0. A mask does not depend on it.
        threshold: γ, as a part of each signal's maximum.
        rule: how signals pass activation functions, see :class:`bort.invert.Backtracker`.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> explain.sat(model, x, k=8).shape
        torch.Size([2, 28, 28])
    """
    check_images(model, x)
    model, x = precise(model), widened(x)
    if target is not None:
        with torch.no_grad(), evaluating(model):
            outputs = outputs_of(model, x[:1])
        targets_of(outputs.expand(len(x), *outputs.shape[1:]), target)
    name = layer or top_layer(model, x)
    count = _channels(model, x, name, k)
    # In batches: `track` returns the signals of all its images together, which for many images need too much memory.
    batches = Backtracker(model, name, rule).batches(x, seeds=max(1, count))
    tracked = (track(model, batch, layer=name, k=count, value=value, rule=rule) for batch in batches)
    return torch.cat([signals.map(threshold=threshold) for signals in tracked])
