"""What a layer has kept of an image: as one reconstruction, or as the signals of its most salient channels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bort._defaults import SALIENT_CHANNELS
from bort.invert._backtrack import Backtracker
from bort.invert._grid import Grid
from bort.invert._rules import Rule


@dataclass(frozen=True)
class Decomposition:
    """The k most salient channels of each image, and the signal of each in the input.

    Example:
        >>> model, x = nets.create("acnn-small", width=0.05), torch.rand(1, 1, 28, 28)
        >>> parts = invert.decompose(model, x, "conv5", k=4, clusters=2)
        >>> bool((parts.values.diff(dim=1) <= 0).all()), parts.clusters.unique()  # most salient first
        (True, tensor([0, 1]))
    """

    layer: str
    rule: Rule
    channels: Tensor
    """(N, k), most salient first."""
    values: Tensor
    """(N, k): the largest activation of each channel."""
    places: Tensor
    """(N, k, 2): row and column of that activation in the map."""
    signals: Tensor
    """``(N, k, *image)``: the paper's Sⁱ, g of a map in which only this channel is not 0."""
    clusters: Tensor | None
    """(N, k): the cluster that each signal belongs to; None if no clusters were asked for."""
    grid: Grid


def reconstruct(
    model: nn.Module,
    x: Tensor,
    layer: str,
    k: int | None = None,
    *,
    value: float = 1.0,
    binary: bool = True,
    rule: Rule | None = None,
) -> Tensor:
    """What a layer has kept of x: g of all its features, or of the k most salient ones (paper, fig:3_1_topk64_recon).

    With ``k`` each of the k channels counts at the place of its largest activation only: with ``value`` if ``binary``, as in
    the paper, otherwise with ``value`` times the activation.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 2, stride=2, bias=False), nn.Flatten(), nn.Linear(16, 3))
        >>> _ = nn.init.orthogonal_(model[0].weight.data.view(4, 4))
        >>> x = torch.rand(2, 1, 4, 4)
        >>> back = invert.reconstruct(model, x, "0")  # there is no activation function on the way
        >>> torch.allclose(back, x, atol=1e-6)  # WᵀW = I: nothing is lost
        True
    """
    back = Backtracker(model, layer, rule)
    if k is None:
        return back.reconstruct(x)
    images = []
    for batch in back.batches(x):
        trace = back.trace(batch)
        salient = trace.salient(k)
        images.append(trace.back(salient.seed(value if binary else value * salient.values)))
    return torch.cat(images)


def decompose(
    model: nn.Module,
    x: Tensor,
    layer: str,
    k: int = SALIENT_CHANNELS,
    *,
    value: float = 1.0,
    clusters: int | None = None,
    rule: Rule | None = None,
    seed: int = 0,
) -> Decomposition:
    """The top-k decomposition of each image: all signals of as many images as memory allows in one batched backward pass.

    Args:
        model, x, layer: any module, a batch of inputs, and the name of the layer whose map is decomposed.
        k: how many channels.
        value: the paper's B, each channel's strength at its place.
        clusters: into how many groups K-Means puts the signals of each image, by their shapes (each scaled to length 1): the
            coloured parts of the paper's fig:3_2. None: no groups.
        rule: see :class:`Backtracker`.
        seed: of K-Means.

    Example:
        >>> model, x = nets.create("acnn-small", width=0.05), torch.rand(2, 1, 28, 28)
        >>> parts = invert.decompose(model, x, "conv5", k=8)
        >>> parts.channels.shape, parts.signals.shape
        (torch.Size([2, 8]), torch.Size([2, 8, 1, 28, 28]))
    """
    back = Backtracker(model, layer, rule)
    batches = []
    for batch in back.batches(x, seeds=max(1, k)):
        trace = back.trace(batch)
        salient = trace.salient(k)
        signals = trace.back(salient.seeds(value)).movedim(0, 1)
        batches.append((salient.channels, salient.values, salient.places, signals))
    channels, values, places, signals = (torch.cat(tensors) for tensors in zip(*batches, strict=True))
    width = trace.grid.shape[2]
    places = torch.stack([places // width, places % width], dim=-1)
    groups = None if clusters is None else _cluster(signals, clusters, seed)
    return Decomposition(layer, trace.rule, channels, values, places, signals, groups, trace.grid)


def _cluster(signals: Tensor, clusters: int, seed: int) -> Tensor:
    """(N, k): the cluster of each of the signals (N, k, *image), image by image."""
    try:
        from sklearn.cluster import KMeans
    except ImportError:
        raise ImportError(
            'clusters come from scikit-learn, which is not installed: pip install "bort[explain]"'
        ) from None
    k = signals.shape[1]
    if not 1 <= clusters <= k:
        raise ValueError(f"clusters={clusters}: there are {k} signals, choose from 1 to {k}")
    groups = []
    for image in signals.flatten(2).double().cpu():
        shapes = image / image.norm(dim=1, keepdim=True).clamp(min=1e-12)
        labels = KMeans(clusters, n_init=4, random_state=seed).fit_predict(shapes.numpy())
        groups.append(torch.from_numpy(labels).long())
    return torch.stack(groups).to(signals.device)
