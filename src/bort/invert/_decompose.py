"""What a layer has kept of an image, whole and in parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bort._defaults import SALIENT_CHANNELS
from bort._inspect import check_input, evaluating
from bort.invert._backtrack import Backtracker
from bort.invert._grid import Grid, find_layer
from bort.invert._rules import Rule
from bort.layers import layer_inputs, linear_map
from bort.penalty import matrices


@dataclass(frozen=True)
class Decomposition:
    """The k most salient channels of each image, and the signal of each in the input."""

    layer: str
    rule: Rule
    channels: Tensor
    """(N, k), most salient first."""
    values: Tensor
    """(N, k): the largest activation of each."""
    places: Tensor
    """(N, k, 2): row and column of it in the map."""
    signals: Tensor
    """(N, k, *image): g of the channel alone, the paper's Sⁱ."""
    clusters: Tensor | None
    """(N, k): which of the clusters of signals each belongs to; None if none were asked for."""
    grid: Grid


def reconstruct(
    model: nn.Module,
    x: Tensor,
    layer: str,
    k: int | None = None,
    *,
    value: float = 1.0,
    binary: bool = True,
    rule: Rule = "guided",
) -> Tensor:
    """What a layer has kept of x: g of all its features, or of the k most salient ones (paper, fig:3_1_topk64_recon).

    With ``k`` each of the k channels counts at the place of its largest activation only: with ``value`` if ``binary``, as in
    the paper, otherwise with ``value`` times the activation.
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
    rule: Rule = "guided",
    seed: int = 0,
) -> Decomposition:
    """The top-k decomposition of each image: all signals of as many images as memory allows in one batched backward
    pass.

    ``clusters`` groups the signals of each image by K-Means on their shapes (each scaled to length 1), as the coloured parts
    of the paper's fig:3_2; ``seed`` is that of K-Means.
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
    return Decomposition(layer, rule, channels, values, places, signals, groups, trace.grid)


def _cluster(signals: Tensor, clusters: int, seed: int) -> Tensor:
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


@dataclass(frozen=True)
class LayerReconstruction:
    """The inputs z of one layer and Wᵀ(Wz), vector by vector (equ:reconstruction)."""

    inputs: Tensor
    """(N, in, samples): what the layer's matrix is multiplied with; patches in a convolution."""
    outputs: Tensor
    ratio: Tensor
    """(N,): ‖z − Wᵀ(Wz)‖ / ‖z‖ of each image (section 4.2)."""


@torch.no_grad()
def reconstruct_layer(model: nn.Module, x: Tensor, layer: str) -> LayerReconstruction:
    """Wᵀ(Wz) for every input z that a linear layer or a convolution receives."""
    check_input(model, x)
    module = find_layer(model, layer)
    weight = getattr(module, "weight", None)
    linear = linear_map("weight", weight, module) if isinstance(weight, Tensor) else None
    if linear is None or not isinstance(weight, Tensor):
        raise ValueError(
            f"the layer {layer!r} is a {type(module).__name__}, not a linear map: choose a convolution or linear layer"
        )
    w = matrices(weight, blocks=linear.blocks, transposed=linear.transposed)
    seen: list[Tensor] = []
    hook = module.register_forward_pre_hook(
        lambda _, inputs, named: seen.append(inputs[0] if inputs else next(iter(named.values()))), with_kwargs=True
    )
    try:
        with evaluating(model):
            for image in x:  # one by one: a linear layer has its rows in one batch
                model(image[None] * 1)
    finally:
        hook.remove()
    if len(seen) != len(x):
        raise ValueError(
            f"the layer {layer!r} was used {len(seen)} times for {len(x)} images: it must be used once for each"
        )
    inputs = torch.stack([next(layer_inputs(module, given.to(w.dtype), linear)) for given in seen])
    outputs = w.mT @ (w @ inputs)
    error, size = (t.flatten(1).double().norm(dim=1) for t in (inputs - outputs, inputs))
    flat = (len(x), -1, inputs.shape[-1])
    return LayerReconstruction(
        inputs.reshape(flat), outputs.reshape(flat), (error / size.clamp(min=1e-300)).to(w.dtype)
    )
