"""Properties of layers, each as a dict by the weights' names: Gram matrix, bounds, reconstruction, comprehensibility."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bort import penalty
from bort._layer_inputs import Source, Use, visit_inputs, weights_of
from bort._precision import own_precision
from bort.measure._rank_correlation import rank_correlation


@dataclass(frozen=True)
class Gram:
    """The entries of a layer's Gram matrices, as the paper's fig:1_2 shows them.

    Example:
        >>> layer = measure.gram(nn.Sequential(nn.Linear(3, 3)))["0.weight"]
        >>> layer.diagonal.shape, layer.off_diagonal.shape
        (torch.Size([3]), torch.Size([6]))
    """

    diagonal: Tensor
    """1 everywhere if the constraint is met. Of a wide weight's WᵀW the mean can only be out/in."""
    off_diagonal: Tensor
    """0 everywhere if it is met. Of more than ``limit`` entries only those of a random part of the columns."""


@torch.no_grad()
def gram(model: nn.Module, limit: int = 1_000_000, *, smaller: bool = False) -> dict[str, Gram]:
    """The distribution of the Gram matrix G = WᵀW of each layer (section 4.2); with ``smaller`` WWᵀ where the layer is wide,
    which is the one that can be brought to I.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False))
        >>> _ = nn.init.eye_(model[0].weight), nn.init.eye_(model[2].weight)
        >>> measure.gram(model)["2.weight"].diagonal  # a wide layer: WᵀW cannot be I
        tensor([1., 1., 0.])
        >>> measure.gram(model, smaller=True)["2.weight"].diagonal  # WWᵀ is
        tensor([1., 1.])
    """
    grams: dict[str, Gram] = {}
    for name, weight, _, linear, _ in weights_of(model).values():
        w = penalty.matrices(weight.detach(), blocks=linear.blocks, transposed=linear.transposed).float()
        if smaller and w.shape[-2] < w.shape[-1]:
            w = w.mT
        with own_precision("highest", w.device):
            grams[name] = _gram(w, limit)
    return grams


def _gram(w: Tensor, limit: int) -> Gram:
    size = w.shape[-1]
    diagonal = w.square().sum(dim=-2).flatten()
    pairs = w.shape[0] * size * (size - 1)
    if pairs <= limit:
        g = w.mT @ w
        off = g[~torch.eye(size, dtype=torch.bool, device=g.device).expand_as(g)]
    else:
        # All pairs of a few columns of each block: as many entries as single pairs would give, at a fraction of the cost.
        count = max(2, min(size, math.isqrt(limit // w.shape[0])))
        columns = torch.randperm(size, generator=torch.Generator().manual_seed(0))[:count].to(w.device)
        g = w[..., columns].mT @ w[..., columns]
        off = g[~torch.eye(count, dtype=torch.bool, device=g.device).expand_as(g)]
    return Gram(diagonal.cpu(), off.cpu())


@dataclass(frozen=True)
class Bounds:
    """‖w_j‖ of a layer's rows (equ:bound).

    Example:
        >>> measure.Bounds(torch.tensor([0.5, 2.0])).constant
        2.0
    """

    norms: Tensor

    @property
    def constant(self) -> float:
        """C_w: the smallest bound that holds for all of them."""
        return self.norms.max().item()


@torch.no_grad()
def bounds(model: nn.Module) -> dict[str, Bounds]:
    """The row norms of each layer.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False))
        >>> _ = nn.init.eye_(model[0].weight), nn.init.eye_(model[2].weight)
        >>> measure.bounds(model)["0.weight"].norms
        tensor([1., 1., 0.])
    """
    layers: dict[str, Bounds] = {}
    for name, weight, _, linear, _ in weights_of(model).values():
        w = penalty.matrices(weight.detach(), blocks=linear.blocks, transposed=linear.transposed)
        layers[name] = Bounds(w.norm(dim=-1).flatten().cpu())
    return layers


def reconstruction_ratio(model: nn.Module, x: Tensor) -> dict[str, float]:
    """‖z − Wᵀ(Wz)‖ / ‖z‖ over all inputs z that a layer receives (section 4.2), in all uses of a shared weight together.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False))
        >>> _ = nn.init.eye_(model[0].weight), nn.init.eye_(model[2].weight)
        >>> measure.reconstruction_ratio(model, torch.rand(8, 2))["0.weight"]  # Wᵀ brings back all
        0.0
    """
    sums: dict[Source, Tensor] = {}

    def visit(use: Use, w: Tensor, z: Tensor) -> None:
        error = z - w.mT @ (w @ z)
        squares = torch.stack([error.double().square().sum(), z.double().square().sum()])
        sums[use.source] = sums[use.source] + squares if use.source in sums else squares

    visit_inputs(model, x, visit)
    squares = {source: pair.tolist() for source, pair in sums.items()}  # of the errors, and of the inputs
    measured = {source: use for source, use in weights_of(model).items() if source in squares and squares[source][1]}
    return {use.name: math.sqrt(squares[source][0] / squares[source][1]) for source, use in measured.items()}


@dataclass(frozen=True)
class Comprehensibility:
    """How similar each weight vector is to the patterns that excite it (Definition 1).

    A weight is comprehensible if there is a pattern z with w = k·z, k > 0: a cosine of 1. A large activation
    w·z = ‖w‖‖z‖cos⟨w, z⟩ is taken for evidence of that (section 3.2), but a long weight or a strong patch makes it large too.

    Example:
        >>> found = measure.comprehensibility(nets.create("lenet"), torch.rand(2, 1, 28, 28))["conv1.weight"]
        >>> found.cosine.shape, bool((found.cosine <= 1).all())
        (torch.Size([6]), True)
    """

    cosine: Tensor
    """(rows,): mean cosine of the weight with the patches that excite it most."""
    claim: Tensor
    """(rows,): the cosine that the activation alone would claim, w·z / (C_w C_z), where C_w and C_z are the largest norms of
    the layer's weights and of the patches it received: 1 is reached by a similar pattern only."""
    agreement: float
    """Rank correlation of claim and cosine over the rows: 1 if a stronger activation always means a more similar pattern."""


def comprehensibility(model: nn.Module, x: Tensor, top: int = 8) -> dict[str, Comprehensibility]:
    """Definition 1 on the inputs of each layer: how similar each weight is to the ``top`` patches that excite it most, in all
    uses of a shared weight together.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 1, bias=False))
        >>> _ = model[0].weight.data.copy_(torch.tensor([[3.0, 4.0]]))
        >>> measure.comprehensibility(model, torch.tensor([[6.0, 8.0], [-1.0, 0.0]]), top=1)["0.weight"].cosine
        tensor([1.])
    """
    if top < 1:
        raise ValueError(f"top={top}: must be 1 or more")
    best: dict[Source, tuple[Tensor, Tensor]] = {}  # activations and cosines of the top patches so far, (rows, top)
    norms: dict[Source, tuple[Tensor, Tensor]] = {}  # C_w and C_z
    weights = weights_of(model)

    def visit(use: Use, w: Tensor, z: Tensor) -> None:
        source = use.source
        if use.linear.transposed != weights[source].linear.transposed:
            return  # of a decoder with the weight of its encoder: other rows
        lengths = z.norm(dim=-2, keepdim=True)
        rows = w.norm(dim=-1, keepdim=True)
        activation = (w @ z).flatten(0, 1)
        cosine = activation / (rows * lengths).clamp(min=1e-30).flatten(0, 1)
        if source in best:
            activation = torch.cat([best[source][0], activation], dim=1)
            cosine = torch.cat([best[source][1], cosine], dim=1)
        strongest = activation.topk(min(top, activation.shape[1]), dim=1)
        best[source] = strongest.values, cosine.gather(1, strongest.indices)
        longest = lengths.amax() if source not in norms else torch.maximum(norms[source][1], lengths.amax())
        norms[source] = rows.amax(), longest

    visit_inputs(model, x, visit)
    results = {}
    for source, (activation, cosine) in best.items():
        bound = (norms[source][0] * norms[source][1]).clamp(min=1e-30)
        similar, claim = cosine.mean(dim=1).cpu(), (activation / bound).mean(dim=1).cpu()
        agreement = rank_correlation(similar[None], claim[None]).item()
        results[weights[source].name] = Comprehensibility(similar, claim, agreement)
    return results
