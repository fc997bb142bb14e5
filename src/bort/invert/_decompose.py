"""What a layer has kept of an image, whole and in parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bort._inspect import evaluating
from bort.layers import layer_inputs
from bort.invert._backtrack import Backtracker, check_input
from bort.invert._grid import Grid, find_layer, grid_of
from bort.invert._rules import Rule
from bort.invert._salient import joint_seed, salient, single_seeds
from bort.layers import linear_map
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
    """What a layer has kept of x: g of its whole map, or of its k most salient features (paper, fig:3_1_topk64_recon).

    With ``k`` each of the k channels counts at its largest activation only: with ``value`` if ``binary``, as in the paper,
    otherwise with ``value`` times the activation.
    """
    back = Backtracker(model, layer, rule)
    if k is None:
        return back.reconstruct(x)
    images = []
    for part in back.batches(x):
        trace = back.trace(part)
        grid = grid_of(model, layer, trace.features)
        found = salient(grid.to_map(trace.features), k)
        strengths = torch.full_like(found.values, value) if binary else value * found.values
        images.append(trace(grid.from_map(joint_seed(found, found.places, strengths, grid.shape))))
    return torch.cat(images)


def decompose(
    model: nn.Module,
    x: Tensor,
    layer: str,
    k: int = 64,
    *,
    value: float = 1.0,
    clusters: int | None = None,
    rule: Rule = "guided",
    seed: int = 0,
) -> Decomposition:
    """The top-k decomposition of each image: all signals of as many images as memory allows in one batched backward
    pass.

    ``clusters`` groups the signals of each image by K-Means on their shapes (each scaled to length 1), as the coloured parts
    of the paper's fig:3_2.
    """
    back = Backtracker(model, layer, rule)
    parts = []
    for part in back.batches(x, seeds=max(1, k)):
        trace = back.trace(part)
        grid = grid_of(model, layer, trace.features)
        found = salient(grid.to_map(trace.features), k)
        signals = trace(grid.from_map(single_seeds(found, grid.shape, value))).movedim(0, 1)
        parts.append((found.channels, found.values, found.places, signals))
    channels, values, places, signals = (torch.cat(each) for each in zip(*parts, strict=True))
    width = grid.shape[2]
    places = torch.stack([places // width, places % width], dim=-1)
    grouped = None if clusters is None else _cluster(signals, clusters, seed)
    return Decomposition(layer, rule, channels, values, places, signals, grouped, grid)


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
    found = []
    for image in signals.flatten(2).double().cpu():
        shapes = image / image.norm(dim=1, keepdim=True).clamp(min=1e-12)
        found.append(KMeans(clusters, n_init=4, random_state=seed).fit_predict(shapes.numpy()))
    return torch.stack([torch.from_numpy(each).long() for each in found]).to(signals.device)


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
