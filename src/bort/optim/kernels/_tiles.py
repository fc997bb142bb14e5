"""Which program of the grouped kernels does what: tables made once for a list of weights, and kept while they stay put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from bort.optim.kernels import _triton as kernels
from bort.optim._plain_torch import Weight

STAGE = 64
ROWS = kernels.TILE
COLUMNS = kernels.TILE

# Half precision keeps 11 bits of a weight. Rounding moves a penalty that is 1e-3 per entry off the constraint by about
# 20%/√K; below this K the rounding error is kept as well, and nothing is lost (docs/speed.md has the measurement).
SHORT = 1024
# Scratch for a batch of weights. A larger weight is a batch of its own, and has kernels of its own on GPUs that can.
SCRATCH_BYTES = 96 * 2**20
# Rows longer than this are summed up in segments.
LONG, SEGMENT = 2**15, 2**14
# Tiles are visited in squares of this side, so that the programs running together share their operands in the L2 cache.
_SQUARE, _LARGE_SQUARE = 1536, 2048


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
    segment: int
    """Columns that the Gram matrix is summed up over at a time; 0: all."""
    large: int
    """Rows of X if it is one weight for the kernels of `_large`, else 0."""
    gram_columns: int
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
    large: bool = False

    @property
    def side(self) -> int:
        return _up(self.k, 2 * ROWS if self.large else ROWS)

    @property
    def padded(self) -> int:
        return _up(self.long, COLUMNS)

    @property
    def x_size(self) -> int:
        return self.side * self.padded * (2 if self.errors else 1)

    @property
    def size(self) -> int:
        """Bytes of scratch."""
        return 2 * (self.x_size + self.side**2)

    @property
    def work(self) -> int:
        return self.side**2 * self.padded


def make_plan(weights: Sequence[Weight], *, keep_errors: bool) -> Plan:
    """Tables for weights of one device and dtype; with ``keep_errors`` short rows are staged with their rounding errors."""
    shapes = []
    for index, (_, weight) in enumerate(weights):
        m, n = weight.shape[0], weight.numel() // weight.shape[0]
        k, long = min(m, n), max(m, n)
        shape = _Shape(index, k, long, m > n, keep_errors and long < SHORT)
        large = shape.size > SCRATCH_BYTES and not shape.errors and has_accelerator(weight.device)
        shapes.append(replace(shape, large=large))
    shapes.sort(key=lambda shape: -shape.work)
    batches: list[list[_Shape]] = []
    room = 0
    for shape in shapes:
        if not batches or shape.size > room:
            batches.append([])
            room = SCRATCH_BYTES
        batches[-1].append(shape)
        room -= shape.size
    results, size = [], 0
    for _, weight in weights:
        results.append((size, weight.shape, weight.stride()))
        size += _up(weight.numel(), 64)
    return Plan(tuple(_batch(batch, weights) for batch in batches), tuple(results), size)


def has_accelerator(device: torch.device) -> bool:
    """Whether the device fetches whole blocks of a matrix by itself, which the kernels of `_large` need."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def _wide_tiles_pay(side: int, device: torch.device) -> bool:
    """Tiles of 128 × 256 are the faster ones, unless they leave more of the last round of programs idle."""
    programs = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    rounds = [-(-len(_tiles(0, side, columns, side, triangle=True)) // programs) for columns in (ROWS, 2 * ROWS)]
    return 2 * rounds[1] <= rounds[0]


def _batch(shapes: list[_Shape], weights: Sequence[Weight]) -> Batch:
    device = weights[0][1].device
    segment = SEGMENT if any(shape.long > LONG for shape in shapes) else 0
    first = shapes[0]
    large = first.large  # and alone
    # two sets of sums for each segment: wide tiles would not have the registers
    gram_columns = 2 * ROWS if large and not segment and _wide_tiles_pay(first.side, device) else ROWS
    apply_columns = 2 * COLUMNS if large else COLUMNS
    rows: list[list[int]] = []
    empty = torch.empty(0, 3, dtype=torch.int64)
    tiles: dict[str, list[Tensor]] = {"stage": [], "gram": [], "wide": [empty], "tall": [empty]}
    x_size = e_size = gram_count = probe_size = 0
    for number, shape in enumerate(shapes):
        side, padded = shape.side, shape.padded
        triangle = _tiles(number, side, gram_columns, side, triangle=True)
        tiles["stage"].append(_tiles(number, side, STAGE, padded, rows=STAGE))
        tiles["gram"].append(triangle)
        if shape.tall and large:
            tiles["tall"].append(_tiles(number, side, ROWS, padded, rows=apply_columns))
        else:
            tiles["tall" if shape.tall else "wide"].append(_tiles(number, side, apply_columns, padded))
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
        segment=segment,
        large=first.side if large else 0,
        gram_columns=gram_columns,
    )


def _tiles(number: int, height: int, columns: int, width: int, *, rows: int = ROWS, triangle: bool = False) -> Tensor:
    """(matrix, i, j) of each tile of rows × columns, neighbours together; of a triangle those that touch it."""
    across = -(-width // columns)
    i, j = torch.meshgrid(torch.arange(-(-height // rows)), torch.arange(across), indexing="ij")
    found = torch.stack([torch.full_like(i, number), i, j], dim=-1).reshape(-1, 3)
    if triangle:
        found = found[(found[:, 1] + 1) * rows > found[:, 2] * columns]
    size = _SQUARE if rows == columns else _LARGE_SQUARE
    square = (found[:, 1] * rows // size) * (width // size + 1) + found[:, 2] * columns // size
    return found[square.argsort(stable=True)]


def _up(size: int, tile: int) -> int:
    return -(-size // tile) * tile
