"""The penalty in plain torch, for any device, dtype, mode and layout: weights of one shape in one batch of products."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bort import penalty
from bort.optim import _stability as _guard

# A batch of stacked weights is a copy of them: keep it small. On the CPU stacking gains nothing, a product fills the cores.
STACK_BYTES = 96 * 2**20
# From this side on a Gram matrix is computed in strips of its lower half.
_STRIPS_FROM, _STRIPS = 512, 4

Weight = tuple[int, Tensor]
"""A weight and its position in its group's list of constrained ones."""

Judged = tuple[float | Tensor, _guard.Limits]
"""What the guard judges a penalty by: see `_settings.judged`."""


def directions(
    weights: list[Weight], group: dict[str, Any], judged: Judged
) -> Iterator[tuple[list[Weight], Tensor, Tensor]]:
    """Batches of weights with their guarded directions W WᵀW − s·W, (batch, *shape), and distances, (batch,)."""
    for batch in _batches(weights):
        # Read in the order of memory: a permutation of the columns (channels_last) goes through the formula unchanged, and
        # nothing has to be copied.
        first = batch[0][1]
        order = [0, *sorted(range(1, first.ndim), key=first.stride, reverse=True)]
        if torch.is_grad_enabled():
            stacked = first.clone().permute(order)[None]  # the step writes into it, and autograd needs it as it was
        elif len(batch) == 1:
            stacked = first.detach().permute(order)[None]
        else:
            stacked = torch.stack([p.detach().permute(order) for _, p in batch])
        moves, distances = direction(stacked, group, judged)
        back = sorted(range(first.ndim), key=order.__getitem__)
        yield batch, moves.permute(0, *[1 + dimension for dimension in back]), distances


def _batches(weights: list[Weight]) -> Iterator[list[Weight]]:
    groups: dict[Any, list[Weight]] = {}
    for weight in weights:
        p = weight[1]
        alone = p.device.type == "cpu" or torch.is_grad_enabled()
        groups.setdefault(weight[0] if alone else (p.shape, p.dtype, p.device, p.stride()), []).append(weight)
    for alike in groups.values():
        p = alike[0][1]
        size = max(1, STACK_BYTES // max(1, p.numel() * p.element_size()))
        yield from (alike[start : start + size] for start in range(0, len(alike), size))


def direction(stacked: Tensor, group: dict[str, Any], judged: Judged) -> tuple[Tensor, Tensor]:
    """The guarded directions of weights of one shape, (batch, *shape), and their distances, (batch,)."""
    mode, transposed = group["mode"], group["transposed"]
    count = len(stacked)
    # (batch, blocks·rows, …) read as (batch·blocks) matrices: a block is a weight of its own
    w = penalty.matrices(stacked.flatten(0, 1), blocks=count * group["blocks"], transposed=transposed)
    s = penalty.target(w, group["scale"])
    e = _gram_defect(w, s) if mode == "full" and not torch.is_grad_enabled() else penalty.defect(w, s, mode)
    size = e.detach().reshape(count, -1)
    distance = torch.linalg.vector_norm(size, dim=1) / (group["blocks"] * max(e.shape[1:])) ** 0.5
    d = e.sign() if penalty.is_l1(mode) else e
    factor = _guard.damping(d.detach(), judged[0], s, judged[1], full=mode.endswith("full"), l1=penalty.is_l1(mode))
    if factor is not None:
        d = d * factor.to(d.dtype)
    move = penalty.pull(w, d, mode)
    # in the products' own precision: half a weight may be too narrow for it until it is multiplied by α·λ
    return (move.mT if transposed else move).reshape(stacked.shape), distance


def _gram_defect(w: Tensor, s: float | Tensor) -> Tensor:
    """`penalty.defect` in mode "full"; of a large Gram matrix only the lower half is computed, the upper half copied."""
    x = w.mT if penalty.is_tall(w) else w
    k = x.shape[-2]
    if len(x) > 1 or k < _STRIPS_FROM:
        gram = x @ x.mT
    else:
        gram = torch.empty(1, k, k, dtype=x.dtype, device=x.device)
        edges = [k * strip // _STRIPS for strip in range(_STRIPS + 1)]
        for start, end in itertools.pairwise(edges):
            strip = gram[0, start:end, :end]
            torch.mm(x[0, start:end], x[0, :end].mT, out=strip)
            gram[0, :start, start:end] = strip[:, :start].mT
    gram.diagonal(dim1=-2, dim2=-1).sub_(s.squeeze(-1) if isinstance(s, Tensor) else s)
    return gram
