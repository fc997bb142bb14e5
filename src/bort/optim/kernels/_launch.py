"""Launches the kernels on the tables of a batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import torch
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from bort.optim.kernels._columns import TILE
from bort.optim.kernels._scalars import Scalars
from bort.optim.kernels._tiles import STAGE, TileBatch
from bort.optim.kernels._triton import apply, gram, stage
from bort.optim.kernels._triton_hopper import apply_large, gram_large
from bort.optim.kernels._triton_judge import judge

# Chosen by measurement on an H200.
_STEP = 64
_ITERATIONS = 16
_JUDGE_TILE = (64, 128)
_OPTIONS: dict[Any, dict[str, int]] = {
    stage: {"num_warps": 4},
    gram: {"num_warps": 8, "num_stages": 3},
    judge: {"num_warps": 8},
    apply: {"num_warps": 4, "num_stages": 3},
    gram_large: {"num_warps": 8, "num_stages": 3},
    apply_large: {"num_warps": 8, "num_stages": 3},
}
_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


Memory: TypeAlias = tuple[Tensor, Tensor]
"""For scratch: numbers of half and of single precision."""


class _Scratch(NamedTuple):
    """Memory that the launches of one batch pass on to each other."""

    x: Tensor
    e: Tensor
    norms: Tensor
    factors: Tensor
    probes: Tensor


def launch(
    batch: TileBatch,
    dtype: torch.dtype,
    scalars: Scalars,
    residuals: Tensor,
    addresses: Tensor | None = None,
    memory: Memory | None = None,
) -> None:
    """The penalty of all weights of a batch, in four launches (five if there are tall weights as well as wide ones).

    Without ``addresses`` the weights are changed in place; with them, (weights, 2) int64, what is added to are the gradients
    at the first of each two addresses, and the results go to the second. ``memory`` is for scratch, at least of the size that
    `scratch_size` says; without it torch's allocator is asked, and has it back when all is launched.
    """
    scratch = _scratch(batch, memory or new_memory(scratch_size([batch]), batch.matrices.device))
    kind, skip = _DTYPES[dtype], scalars.skip
    arguments = (batch.matrices, batch.stage_tiles, scratch.x, skip, kind, skip is not None, STAGE)
    _start(batch, stage, len(batch.stage_tiles), arguments, (skip,))
    _launch_gram(batch, scratch, scalars)
    _launch_judge(batch, scratch, scalars, residuals)
    for is_tall, tiles in enumerate(batch.apply_tiles):
        if len(tiles):
            _launch_apply(batch, scratch, scalars, tiles, is_tall, kind, addresses)


def scratch_size(batches: Iterable[TileBatch]) -> tuple[int, int]:
    """How many numbers of half and of single precision the launches of one batch after the other need."""
    sizes = [(batch.x_size + batch.e_size, sum(_singles(batch))) for batch in batches]
    return max(halves for halves, _ in sizes), max(singles for _, singles in sizes)


def new_memory(size: tuple[int, int], device: torch.device) -> Memory:
    halves, singles = size
    return (
        torch.empty(halves, dtype=torch.float16, device=device),
        torch.empty(singles, dtype=torch.float32, device=device),
    )


def _scratch(batch: TileBatch, memory: Memory) -> _Scratch:
    """At the beginning of each block of memory: what Triton compiles for depends on how addresses are aligned."""
    halves, singles = memory
    x, e = torch.split(halves[: batch.x_size + batch.e_size], [batch.x_size, batch.e_size])
    sizes = _singles(batch)
    norms, factors, probes = torch.split(singles[: sum(sizes)], sizes)
    return _Scratch(x.view(batch.large or 1, -1), e.view(batch.large or 1, -1), norms, factors, probes)


def _singles(batch: TileBatch) -> list[int]:
    return [len(batch.gram_tiles), len(batch.members), batch.probe_size]


def _launch_gram(batch: TileBatch, scratch: _Scratch, scalars: Scalars) -> None:
    x, e, norms = scratch.x, scratch.e, scratch.norms
    optional = (scalars.scales, scalars.skip)
    numbers = (scalars.scale, *optional, *[tensor is not None for tensor in optional])
    tables, programs = (batch.matrices, batch.gram_tiles), len(batch.gram_tiles)
    if batch.large:
        blocks = (_blocks(x, TILE, _STEP), _blocks(x, batch.gram_columns, _STEP))
        sizes = (TILE, batch.gram_columns, _STEP, batch.segment)
        _start(batch, gram_large, programs, (*tables, *blocks, e, norms, *numbers, *sizes), optional)
    else:
        arguments = (*tables, x, e, norms, *numbers, TILE, _STEP, batch.segment)
        _start(batch, gram, programs, arguments, optional)


def _launch_judge(batch: TileBatch, scratch: _Scratch, scalars: Scalars, residuals: Tensor) -> None:
    memory = (batch.matrices, scratch.e, scratch.norms, scratch.probes, residuals, scratch.factors)
    limits, skip = scalars.limits, scalars.skip
    scales = scalars.scales if scalars.is_adaptive else None
    numbers = (scalars.rate, scalars.scale, scales, limits.step, limits.scale, limits.shortened, skip)
    constants = (_ITERATIONS, scales is not None, skip is not None, *_JUDGE_TILE)
    _start(batch, judge, len(batch.members), (*memory, *numbers, *constants), (scales, skip))


def _launch_apply(
    batch: TileBatch,
    scratch: _Scratch,
    scalars: Scalars,
    tiles: Tensor,
    is_tall: int,
    kind: tl.dtype,
    addresses: Tensor | None,
) -> None:
    x, e = scratch.x, scratch.e
    optional = (addresses, scalars.skip)
    numbers = (scratch.factors, addresses, scalars.factor, scalars.skip)
    constants = (kind, *[tensor is not None for tensor in optional], bool(is_tall))
    if not batch.large:
        arguments = (batch.matrices, tiles, x, e, *numbers, *constants, TILE, TILE, _STEP)
        _start(batch, apply, len(tiles), arguments, optional, is_tall)
        return
    rows, columns = TILE, 2 * TILE
    if is_tall:
        blocks = (_blocks(x, _STEP, rows), _blocks(e, _STEP, columns))
    else:
        blocks = (_blocks(x, _STEP, columns), _blocks(e, rows, _STEP))
    arguments = (batch.matrices, tiles, *blocks, *numbers, *constants, rows, columns, _STEP)
    _start(batch, apply_large, len(tiles), arguments, optional, is_tall)


def _blocks(matrix: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A matrix, described to the tensor memory accelerator as blocks of this size."""
    return TensorDescriptor.from_tensor(matrix, [rows, columns])


def _start(
    batch: TileBatch,
    kernel: Any,
    programs: int,
    arguments: tuple[Any, ...],
    optional: tuple[Tensor | None, ...] = (),
    variant: int = 0,
) -> None:
    """kernel[programs](*arguments), without Triton's look-up of the compiled kernel, which costs more than the launch.

    What Triton compiles for (types, alignment, constants) is the same each time for one batch, except for the ``optional``
    tensors, which may be missing, and the ``variant``.
    """
    key = (kernel, variant, *[None if tensor is None else tensor.dtype for tensor in optional])
    compiled = batch.compiled.get(key)
    if compiled is None:
        batch.compiled[key] = kernel[(programs,)](*arguments, **_OPTIONS[kernel])
    else:
        # Addresses rather than tensors: Triton asks the driver about each tensor that it is given.
        compiled[(programs, 1, 1)](*[a.data_ptr() if isinstance(a, Tensor) else a for a in arguments])
