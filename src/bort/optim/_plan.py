"""Which program of the grouped kernels does what: tables made once for a list of weights, and kept while they stay put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    apply_tiles: Tensor
    x_size: int
    e_size: int
    probe_size: int


@dataclass(frozen=True)
class Plan:
    """The rounds for a list of weights: good as long as these stay where they are in memory."""

    batches: tuple[Batch, ...]


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
    return Plan(tuple(_batch(batch, weights) for batch in batches))


def _batch(shapes: list[_Shape], weights: Sequence[Weight]) -> Batch:
    rows: list[list[int]] = []
    tiles: dict[str, list[Tensor]] = {"stage": [], "gram": [], "apply": []}
    x_size = e_size = gram_count = probe_size = 0
    for number, shape in enumerate(shapes):
        side, padded = shape.side, shape.padded
        triangle = _tiles(number, side // ROWS, side // ROWS, triangle=True)
        tiles["stage"].append(_tiles(number, side // STAGE, padded // STAGE))
        tiles["gram"].append(triangle)
        tiles["apply"].append(_tiles(number, side // ROWS, padded // COLUMNS))
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
    stage, gram, apply = (torch.cat(found).to(torch.int32).to(device) for found in tiles.values())
    return Batch(
        members=tuple(shape.index for shape in shapes),
        matrices=torch.tensor(rows, dtype=torch.int64).to(device),
        stage_tiles=stage,
        gram_tiles=gram,
        apply_tiles=apply,
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
    """The four launches; ``pointers`` are the addresses (gradient, result) of each weight when the penalty is coupled."""
    device = batch.matrices.device
    count, tiles = len(batch.members), len(batch.gram_tiles)
    x = torch.empty(batch.x_size, dtype=torch.float16, device=device)
    e = torch.empty(batch.e_size, dtype=torch.float16, device=device)
    numbers = torch.empty(tiles + count + batch.probe_size, dtype=torch.float32, device=device)
    norms, factors, probes = numbers[:tiles], numbers[tiles : tiles + count], numbers[tiles + count :]
    kernels.stage[(len(batch.stage_tiles),)](
        batch.matrices, batch.stage_tiles, x, kernels.FIELDS, _DTYPES[dtype], STAGE, num_warps=4
    )
    kernels.gram[(tiles,)](
        batch.matrices, batch.gram_tiles, x, e, norms, penalty.scale, kernels.FIELDS, ROWS, **GRAM_OPTIONS
    )
    kernels.judge[(count,)](
        batch.matrices,
        e,
        norms,
        probes,
        residuals,
        factors,
        penalty.rate,
        penalty.rate_tensor,
        penalty.scale,
        penalty.limits.step,
        penalty.limits.scale,
        penalty.limits.shortened,
        ITERATIONS=16,
        FIELDS=kernels.FIELDS,
        HAS_RATE=penalty.rate_tensor is not None,
        ROWS=64,
        COLUMNS=128,
        num_warps=8,
    )
    kernels.apply[(len(batch.apply_tiles),)](
        batch.matrices,
        batch.apply_tiles,
        x,
        e,
        factors,
        pointers,
        penalty.strength,
        penalty.strength_tensor,
        penalty.skip,
        FIELDS=kernels.FIELDS,
        DTYPE=_DTYPES[dtype],
        COUPLED=pointers is not None,
        HAS_RATE=penalty.strength_tensor is not None,
        HAS_SKIP=penalty.skip is not None,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        **APPLY_OPTIONS,
    )


# Chosen by measurement on an H200.
GRAM_OPTIONS: dict[str, Any] = {"STEP": 64, "num_warps": 4, "num_stages": 3}
APPLY_OPTIONS: dict[str, Any] = {"STEP": 64, "num_warps": 8, "num_stages": 3}
_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
