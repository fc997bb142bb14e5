"""The penalty in plain torch, for any device, dtype, mode and layout: weights of one shape in one batch of products."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from bort import penalty
from bort.optim._spec import Moves, PenaltySpec, Weight
from bort.optim._stability import TINY, Stability

# A batch of stacked weights is a copy of them: keep it small.
_STACK_BYTES = 96 * 2**20
# On a CPU a larger weight gains nothing from stacking: its products fill the cores. Of small ones the calls are the cost:
# 2,000 matrices of 4 × 4 take 14 times as long one by one (benchmarks/small.py).
_STACK_ON_CPU = 2**14
# From this side on a Gram matrix is computed in strips of its lower half.
_STRIPS_FROM, _STRIPS = 512, 4
# From this size on a weight's second product is computed in bfloat16 at precision "medium", on CPUs that have it.
_BFLOAT16_FROM = 2**16


def directions(weights: list[Weight], spec: PenaltySpec, stability: Stability) -> Iterator[Moves]:
    """The directions and residuals of all weights, those of one shape together."""
    # A guard that cannot prove a step stable takes many small calls. So it judges Gram matrices of one side together, of
    # weights of any shape, and all that have few rows or columns.
    waiting: dict[Any, list[tuple[list[Weight], _Defects]]] = {}
    size = 0
    for batch in _batches(weights):
        defects = _Defects.of(_stacked(batch), spec, spec.scales_of([slot for slot, _ in batch]))
        d = defects.d
        if not spec.mode.endswith("full") or (d.shape[-1] >= TINY and stability.may_look_at(d)):
            yield _moves(batch, defects, defects.damping(stability))
            continue
        waiting.setdefault((d.device, d.dtype, max(TINY, d.shape[-1])), []).append((batch, defects))
        size += (defects.w.numel() + d.numel()) * d.element_size()
        if size > _STACK_BYTES:
            yield from _judged_together(waiting, stability)
            waiting, size = {}, 0
    yield from _judged_together(waiting, stability)


def _judged_together(waiting: dict[Any, list[tuple[list[Weight], _Defects]]], stability: Stability) -> Iterator[Moves]:
    for members in waiting.values():
        factors = _damping_together([defects for _, defects in members], stability)
        for (batch, defects), factor in zip(members, factors, strict=True):
            yield _moves(batch, defects, factor)


def residual(weight: Weight, spec: PenaltySpec) -> Tensor:
    slot, p = weight
    return _Defects.of(p.detach()[None], spec, spec.scales_of([slot])).residuals[0]


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


def _stacked(batch: list[Weight]) -> Tensor:
    """(batch, *shape), with the columns in the order of memory, so that a single weight need not be copied: a permutation of
    the columns (channels_last) goes through W WᵀW − s·W unchanged."""
    first = batch[0][1]
    order = _order(first)
    if torch.is_grad_enabled():
        return first.clone().permute(order)[None]  # the step writes into it, and autograd needs it as it was
    if len(batch) == 1:
        return first.detach().permute(order)[None]
    if order == list(range(first.ndim)):
        return torch.stack([p for _, p in batch])
    return torch.stack([p.permute(order) for _, p in batch])


def _moves(batch: list[Weight], defects: _Defects, factor: Tensor | None) -> Moves:
    order = _order(batch[0][1])
    own_order = sorted(range(len(order)), key=order.__getitem__)
    moves = defects.moves(factor).permute(0, *[1 + dimension for dimension in own_order])
    return batch, moves, defects.residuals


def _order(p: Tensor) -> list[int]:
    return [0, *sorted(range(1, p.ndim), key=p.stride, reverse=True)]


@dataclass(frozen=True, slots=True)
class _Defects:
    """How far weights of one shape are from their target, as matrices."""

    spec: PenaltySpec
    shape: torch.Size
    """(batch, *shape of a weight)."""
    w: Tensor
    """(batch·blocks, rows, columns)."""
    d: Tensor
    """The defects of the matrices, or the signs of these."""
    s: float | Tensor
    """The target."""
    residuals: Tensor
    """(batch,)."""

    @classmethod
    def of(cls, stacked: Tensor, spec: PenaltySpec, scales: Tensor | None) -> _Defects:
        """Of weights (batch, *shape). With ``scales``, (batch, blocks), each block is measured in units of its own."""
        mode, count = spec.mode, len(stacked)
        # (batch, blocks·rows, …) read as (batch·blocks) matrices: a block is a weight of its own.
        w = penalty.matrices(stacked.flatten(0, 1), blocks=count * spec.blocks, transposed=spec.transposed)
        s = penalty.target(w, spec.scale) if scales is None else scales.reshape(-1, 1, 1).to(w)  # type: ignore[arg-type]
        is_gram = mode.endswith("full") and not torch.is_grad_enabled()
        e = _gram_defect(w, s) if is_gram else penalty.defect(w, s, mode)
        if scales is not None:
            e, s = e / s, 1.0
        sizes = torch.linalg.vector_norm(e.detach().reshape(count, -1), dim=1)
        residuals = sizes / (spec.blocks * max(e.shape[1:])) ** 0.5
        return cls(spec, stacked.shape, w, e.sign() if penalty.is_l1(mode) else e, s, residuals)

    def damping(self, stability: Stability) -> Tensor | None:
        """The factor that keeps the step stable, shaped to multiply d; None: nothing has to be done."""
        mode = self.spec.mode
        return stability.damping(self.d.detach(), self.s, full=mode.endswith("full"), l1=penalty.is_l1(mode))

    def moves(self, factor: Tensor | None) -> Tensor:
        """The directions, (batch, *shape of a weight)."""
        d = self.d if factor is None else self.d * factor.to(self.d.dtype)
        w = self.w
        if self.spec.precision == "medium" and self.spec.mode.endswith("full") and _bfloat16_pays(w):
            # Not the Gram matrix: in G − I little would be left beside the rounding errors of W. Here they are 0.3%.
            move = penalty.pull(w.bfloat16(), d.bfloat16(), self.spec.mode).to(w.dtype)
        else:
            move = penalty.pull(w, d, self.spec.mode)
        # Not in the dtype of the weight: half precision may be too narrow for W WᵀW, before it is multiplied by α·λ.
        return (move.mT if self.spec.transposed else move).reshape(self.shape)


def _damping_together(members: list[_Defects], stability: Stability) -> list[Tensor | None]:
    """The factors of Gram matrices in one go; smaller ones are padded with zeros, which change no norm."""
    if len(members) == 1:
        return [members[0].damping(stability)]
    missing = [max(m.d.shape[-1] for m in members) - m.d.shape[-1] for m in members]
    padded = [
        F.pad(m.d.detach(), (0, rows) * 2) if rows else m.d.detach() for m, rows in zip(members, missing, strict=True)
    ]
    targets = [m.s for m in members if isinstance(m.s, Tensor)]
    s = torch.cat(targets) if targets else members[0].s
    factors = stability.damping(torch.cat(padded), s, l1=penalty.is_l1(members[0].spec.mode))
    return [None] * len(members) if factors is None else list(torch.split(factors, [len(m.d) for m in members]))


def _bfloat16_pays(w: Tensor) -> bool:
    return (
        w.device.type == "cpu"
        and w.dtype is torch.float32
        and w.numel() >= _BFLOAT16_FROM
        and not torch.is_grad_enabled()
        and _cpu_has_bfloat16()
    )


@functools.cache
def _cpu_has_bfloat16() -> bool:
    """Whether the CPU multiplies matrices of bfloat16 faster than of float32 (AVX512-BF16, AMX)."""
    tests = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    has_library: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_library and any(getattr(torch.cpu, test, bool)() for test in tests)


def _gram_defect(w: Tensor, s: float | Tensor) -> Tensor:
    """`penalty.defect` in the full modes; of a large Gram matrix only the lower half is computed, the upper half copied."""
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
