"""The penalty in plain torch, for any device, dtype, mode and layout: weights of one shape in one batch of products."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bort import penalty
from bort.optim._spec import Move, PenaltySpec, Weight
from bort.optim._stability import Stability

# A batch of stacked weights is a copy of them: keep it small.
_STACK_BYTES = 96 * 2**20
# On a CPU a larger weight gains nothing from stacking: its products fill the cores. Of small ones the calls are the cost:
# 2,000 matrices of 4 × 4 take 14 times as long one by one (benchmarks/small.py).
_STACK_ON_CPU = 2**14
# From this side on a Gram matrix is computed in strips of its lower half.
_STRIPS_FROM, _STRIPS = 512, 4


def directions(weights: list[Weight], spec: PenaltySpec, stability: Stability) -> Iterator[Move]:
    """The direction and residual of each weight."""
    for batch in _batches(weights):
        # Columns in the order of memory, so that nothing has to be copied: a permutation of the columns (channels_last)
        # goes through W WᵀW − s·W unchanged.
        first = batch[0][1]
        order = [0, *sorted(range(1, first.ndim), key=first.stride, reverse=True)]
        if torch.is_grad_enabled():
            stacked = first.clone().permute(order)[None]  # the step writes into it, and autograd needs it as it was
        elif len(batch) == 1:
            stacked = first.detach().permute(order)[None]
        else:
            stacked = torch.stack([p.detach().permute(order) for _, p in batch])
        moves, residuals = direction(stacked, spec, stability)
        own_order = sorted(range(first.ndim), key=order.__getitem__)
        moves = moves.permute(0, *[1 + dimension for dimension in own_order])
        yield from zip(batch, moves, residuals, strict=True)


def _batches(weights: list[Weight]) -> Iterator[list[Weight]]:
    """Weights that can be stacked, in batches of at most ``_STACK_BYTES``. Large ones on a CPU go one by one, as all do for
    autograd."""
    alike: dict[Any, list[Weight]] = {}
    for weight in weights:
        p = weight[1]
        single = torch.is_grad_enabled() or (p.device.type == "cpu" and p.numel() > _STACK_ON_CPU)
        alike.setdefault(weight[0] if single else (p.shape, p.dtype, p.device, p.stride()), []).append(weight)
    for members in alike.values():
        p = members[0][1]
        size = max(1, _STACK_BYTES // max(1, p.numel() * p.element_size()))
        yield from (members[start : start + size] for start in range(0, len(members), size))


def direction(stacked: Tensor, spec: PenaltySpec, stability: Stability) -> tuple[Tensor, Tensor]:
    """The guarded directions of weights of one shape, (batch, *shape), and their residuals, (batch,)."""
    mode, transposed = spec.mode, spec.transposed
    count = len(stacked)
    # (batch, blocks·rows, …) read as (batch·blocks) matrices: a block is a weight of its own.
    w = penalty.matrices(stacked.flatten(0, 1), blocks=count * spec.blocks, transposed=transposed)
    s = penalty.target(w, spec.scale)
    e = _gram_defect(w, s) if mode == "full" and not torch.is_grad_enabled() else penalty.defect(w, s, mode)
    sizes = torch.linalg.vector_norm(e.detach().reshape(count, -1), dim=1)
    residuals = sizes / (spec.blocks * max(e.shape[1:])) ** 0.5
    l1 = penalty.is_l1(mode)
    d = e.sign() if l1 else e
    factor = stability.damping(d.detach(), s, full=mode.endswith("full"), l1=l1)
    if factor is not None:
        d = d * factor.to(d.dtype)
    move = penalty.pull(w, d, mode)
    # Not in the dtype of the weight: half precision may be too narrow for W WᵀW, before it is multiplied by α·λ.
    return (move.mT if transposed else move).reshape(stacked.shape), residuals


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
