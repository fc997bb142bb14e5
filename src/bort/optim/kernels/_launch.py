"""Starts the grouped kernels on the tables of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from bort.optim.kernels import _triton_hopper as _large
from bort.optim.kernels import _triton as kernels
from bort.optim._stability import Limits
from bort.optim.kernels._tiles import COLUMNS, ROWS, STAGE, Batch

# Chosen by measurement on an H200.
STEP = 64
ITERATIONS = 16
_OPTIONS: dict[Any, dict[str, int]] = {
    kernels.stage: {"num_warps": 4},
    kernels.gram: {"num_warps": 8, "num_stages": 3},
    kernels.judge: {"num_warps": 8},
    kernels.apply: {"num_warps": 4, "num_stages": 3},
    _large.gram_large: {"num_warps": 8, "num_stages": 3},
    _large.apply_large: {"num_warps": 8, "num_stages": 3},
}
_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@dataclass(frozen=True)
class Penalty:
    """What one step asks of the kernels. A tensor beside a number multiplies it, on the device."""

    scale: float
    rate: float
    """a = α·λ, which the stability guard judges."""
    rate_tensor: Tensor | None
    strength: float
    """What E·X is multiplied by before it is added: −α·λ to the weight (decoupled), λ to the gradient (coupled)."""
    strength_tensor: Tensor | None
    limits: Limits
    skip: Tensor | None = None
    """Not zero: leave the weights as they are."""


def launch(batch: Batch, dtype: torch.dtype, penalty: Penalty, residuals: Tensor, pointers: Tensor | None) -> None:
    """The four launches (five if there are tall weights as well as wide ones); ``pointers`` are the addresses (gradient,
    result) of each weight when the penalty is coupled."""
    device, limits = batch.matrices.device, penalty.limits
    count, tiles = len(batch.members), len(batch.gram_tiles)
    x = torch.empty(batch.x_size, dtype=torch.float16, device=device).view(batch.large or 1, -1)
    e = torch.empty(batch.e_size, dtype=torch.float16, device=device).view(batch.large or 1, -1)
    numbers = torch.empty(tiles + count + batch.probe_size, dtype=torch.float32, device=device)
    norms, factors, probes = torch.split(numbers, [tiles, count, batch.probe_size])
    kind = _DTYPES[dtype]
    stage = (batch.matrices, batch.stage_tiles, x, kernels.FIELDS, kind, STAGE)
    _start(batch, kernels.stage, len(batch.stage_tiles), stage)
    gram: tuple[Any, ...]
    apply: tuple[Any, ...]
    if batch.large:
        operands = (_blocks(x, ROWS, STEP), _blocks(x, batch.gram_columns, STEP), e, norms, penalty.scale)
        gram = (batch.matrices, batch.gram_tiles, *operands, ROWS, batch.gram_columns, STEP, batch.segment)
        _start(batch, _large.gram_large, tiles, gram)
    else:
        gram = (batch.matrices, batch.gram_tiles, x, e, norms, penalty.scale, kernels.FIELDS, ROWS, STEP, batch.segment)
        _start(batch, kernels.gram, tiles, gram)
    judge = (batch.matrices, e, norms, probes, residuals, factors, penalty.rate, penalty.rate_tensor, penalty.scale)
    bounds = (limits.step, limits.scale, limits.shortened)
    constants = (ITERATIONS, kernels.FIELDS, penalty.rate_tensor is not None, 64, 128)
    _start(batch, kernels.judge, count, (*judge, *bounds, *constants), (penalty.rate_tensor,))
    optional = (pointers, penalty.strength_tensor, penalty.skip)
    how = (kind, pointers is not None, penalty.strength_tensor is not None, penalty.skip is not None)
    rates = (factors, pointers, penalty.strength, penalty.strength_tensor, penalty.skip)
    for tall, found in enumerate(batch.apply_tiles):
        if len(found) and batch.large:
            if tall:
                blocks = (_blocks(x, STEP, ROWS), _blocks(e, STEP, 2 * COLUMNS))
            else:
                blocks = (_blocks(x, STEP, 2 * COLUMNS), _blocks(e, ROWS, STEP))
            apply = (batch.matrices, found, *blocks, *rates, *how, bool(tall), ROWS, 2 * COLUMNS, STEP)
            _start(batch, _large.apply_large, len(found), apply, optional, tall)
        elif len(found):
            apply = (batch.matrices, found, x, e, *rates, *how, bool(tall), ROWS, COLUMNS, STEP, kernels.FIELDS)
            _start(batch, kernels.apply, len(found), apply, optional, tall)


def _blocks(matrix: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A matrix as the memory accelerator is told of it: it will be asked for blocks of this size."""
    return TensorDescriptor.from_tensor(matrix, [rows, columns])


def _start(
    batch: Batch,
    kernel: Any,
    programs: int,
    arguments: tuple[Any, ...],
    optional: tuple[Tensor | None, ...] = (),
    variant: int = 0,
) -> None:
    """kernel[programs](*arguments), past the search for the compiled kernel, which costs more than the launch itself.

    What Triton compiles for (types, alignment, constants) is the same each time for one batch, but for the tensors that
    may or may not be there.
    """
    key = (kernel, variant, *[None if tensor is None else tensor.dtype for tensor in optional])
    compiled = batch.compiled.get(key)
    if compiled is None:
        batch.compiled[key] = kernel[(programs,)](*arguments, **_OPTIONS[kernel])
    else:
        # Addresses rather than tensors: Triton asks the driver about each tensor that it is given.
        compiled[(programs, 1, 1)](*[a.data_ptr() if isinstance(a, Tensor) else a for a in arguments])
