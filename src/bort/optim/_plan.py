"""Which program of the grouped kernels does what: tables made once for a list of weights, and kept while they stay put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from bort.optim import _triton as kernels
from bort.optim._dense import Weight
from bort.optim._guard import Limits

STAGE = 64
ROWS = kernels.TILE
COLUMNS = kernels.TILE

# Half precision keeps 11 bits of a weight. Rounding moves a penalty that is 1e-3 per entry off the constraint by about
# 20%/√K; below this K the rounding error is kept as well, and nothing is lost (docs/speed.md has the measurement).
SHORT = 1024
# Scratch for a batch of weights. A larger weight is a batch of its own.
SCRATCH_BYTES = 96 * 2**20
# Tiles are visited in squares of this side, so that the programs running together share their operands in the L2 cache.
_NEIGHBOURS = 12


@dataclass(frozen=True)
class Batch:
    """One round of the four launches."""

    members: tuple[int, ...]
    """Positions of the weights in the list the plan was made for."""
    matrices: Tensor
    stage_tiles: Tensor
    gram_tiles: Tensor
    apply_tiles: tuple[Tensor, Tensor]
    """Of the wide weights, and of the tall ones."""
    x_size: int
    e_size: int
    probe_size: int
    compiled: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The rounds for a list of weights: good as long as these stay where they are in memory."""

    batches: tuple[Batch, ...]
    results: tuple[tuple[int, torch.Size, tuple[int, ...]], ...]
    """Where the penalised gradients go in one block of memory: offset, shape and strides of each."""
    result_size: int


@dataclass(frozen=True)
class _Shape:
    index: int
    k: int
    long: int
    tall: bool
    errors: bool

    @property
    def side(self) -> int:
        return _up(self.k, ROWS)

    @property
    def padded(self) -> int:
        return _up(self.long, COLUMNS)

    @property
    def x_size(self) -> int:
        return self.side * self.padded * (2 if self.errors else 1)

    @property
    def work(self) -> int:
        return self.side**2 * self.padded


def make_plan(weights: Sequence[Weight], *, keep_errors: bool) -> Plan:
    """Tables for weights of one device and dtype; with ``keep_errors`` short rows are staged with their rounding errors."""
    shapes = []
    for index, (_, weight) in enumerate(weights):
        m, n = weight.shape[0], weight.numel() // weight.shape[0]
        k, long = min(m, n), max(m, n)
        shapes.append(_Shape(index, k, long, m > n, keep_errors and long < SHORT))
    shapes.sort(key=lambda shape: -shape.work)
    batches: list[list[_Shape]] = []
    room = 0
    for shape in shapes:
        size = 2 * (shape.x_size + shape.side**2)
        if not batches or size > room:
            batches.append([])
            room = SCRATCH_BYTES
        batches[-1].append(shape)
        room -= size
    results, size = [], 0
    for _, weight in weights:
        results.append((size, weight.shape, weight.stride()))
        size += _up(weight.numel(), 64)
    return Plan(tuple(_batch(batch, weights) for batch in batches), tuple(results), size)


def _batch(shapes: list[_Shape], weights: Sequence[Weight]) -> Batch:
    rows: list[list[int]] = []
    empty = torch.empty(0, 3, dtype=torch.int64)
    tiles: dict[str, list[Tensor]] = {"stage": [], "gram": [], "wide": [empty], "tall": [empty]}
    x_size = e_size = gram_count = probe_size = 0
    for number, shape in enumerate(shapes):
        side, padded = shape.side, shape.padded
        triangle = _tiles(number, side // ROWS, side // ROWS, triangle=True)
        tiles["stage"].append(_tiles(number, side // STAGE, padded // STAGE))
        tiles["gram"].append(triangle)
        tiles["tall" if shape.tall else "wide"].append(_tiles(number, side // ROWS, padded // COLUMNS))
        rows.append(
            [
                weights[shape.index][1].data_ptr(),
                x_size,
                e_size,
                shape.k,
                shape.long,
                side,
                padded,
                int(shape.tall),
                side * padded if shape.errors else 0,
                gram_count,
                len(triangle),
                weights[shape.index][0],
                probe_size,
            ]
        )
        x_size += shape.x_size
        e_size += side**2
        gram_count += len(triangle)
        probe_size += 2 * side
    device = weights[0][1].device
    stage, gram, wide, tall = (torch.cat(found).to(torch.int32).to(device) for found in tiles.values())
    return Batch(
        members=tuple(shape.index for shape in shapes),
        matrices=torch.tensor(rows, dtype=torch.int64).to(device),
        stage_tiles=stage,
        gram_tiles=gram,
        apply_tiles=(wide, tall),
        x_size=x_size,
        e_size=e_size,
        probe_size=probe_size,
    )


def _tiles(number: int, down: int, across: int, *, triangle: bool = False) -> Tensor:
    """(matrix, i, j) of each tile, neighbours together."""
    i, j = torch.meshgrid(torch.arange(down), torch.arange(across), indexing="ij")
    found = torch.stack([torch.full_like(i, number), i, j], dim=-1).reshape(-1, 3)
    if triangle:
        found = found[found[:, 1] >= found[:, 2]]
    square = (found[:, 1] // _NEIGHBOURS) * (across // _NEIGHBOURS + 1) + found[:, 2] // _NEIGHBOURS
    return found[square.argsort(stable=True)]


def _up(size: int, tile: int) -> int:
    return -(-size // tile) * tile


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
    device = batch.matrices.device
    count, tiles = len(batch.members), len(batch.gram_tiles)
    x = torch.empty(batch.x_size, dtype=torch.float16, device=device)
    e = torch.empty(batch.e_size, dtype=torch.float16, device=device)
    numbers = torch.empty(tiles + count + batch.probe_size, dtype=torch.float32, device=device)
    norms, factors, probes = torch.split(numbers, [tiles, count, batch.probe_size])
    limits, kind = penalty.limits, _DTYPES[dtype]
    _start(
        batch,
        kernels.stage,
        len(batch.stage_tiles),
        (batch.matrices, batch.stage_tiles, x, kernels.FIELDS, kind, STAGE),
    )
    _start(
        batch,
        kernels.gram,
        tiles,
        (batch.matrices, batch.gram_tiles, x, e, norms, penalty.scale, kernels.FIELDS, ROWS, STEP),
    )
    numbers_of_guard = (penalty.rate, penalty.rate_tensor, penalty.scale, limits.step, limits.scale, limits.shortened)
    _start(
        batch,
        kernels.judge,
        count,
        (
            *(batch.matrices, e, norms, probes, residuals, factors, *numbers_of_guard),
            *(ITERATIONS, kernels.FIELDS, penalty.rate_tensor is not None, 64, 128),
        ),
        (penalty.rate_tensor,),
    )
    for tall, found in enumerate(batch.apply_tiles):
        if len(found):
            _start(
                batch,
                kernels.apply,
                len(found),
                (
                    *(batch.matrices, found, x, e, factors, pointers, penalty.strength, penalty.strength_tensor),
                    *(penalty.skip, kernels.FIELDS, kind, bool(tall), pointers is not None),
                    *(penalty.strength_tensor is not None, penalty.skip is not None, ROWS, COLUMNS, STEP),
                ),
                (pointers, penalty.strength_tensor, penalty.skip),
                tall,
            )


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


# Chosen by measurement on an H200.
STEP = 64
ITERATIONS = 16
_OPTIONS: dict[Any, dict[str, int]] = {
    kernels.stage: {"num_warps": 4},
    kernels.gram: {"num_warps": 8, "num_stages": 3},
    kernels.judge: {"num_warps": 8},
    kernels.apply: {"num_warps": 4, "num_stages": 3},
}
_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
