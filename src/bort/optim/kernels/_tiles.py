"""Which program of a launch does what: the tables for a list of weights, made once and kept while the weights stay where
they are in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from bort.optim._spec import Weight
from bort.optim.kernels._columns import TILE, MatrixRow, TileRow
from bort.optim.kernels._tuning import Tuning

STAGE = 64
"""The side of the tiles of ``stage``."""

# Tiles are visited in squares of this side, so that programs that run at the same time share operands in the L2 cache.
_SQUARE, _LARGE_SQUARE = 1536, 2048


@dataclass(frozen=True)
class TileBatch:
    """The tables of one round of the four launches, on the device."""

    members: tuple[int, ...]
    """Positions of the weights in the list that the tiling was made for."""
    matrices: Tensor
    """A `MatrixRow` for each weight."""
    stage_tiles: Tensor
    """A `TileRow` for each program; likewise the next two."""
    gram_tiles: Tensor
    apply_tiles: tuple[Tensor, Tensor]
    """Of the wide weights, and of the tall ones."""
    x_size: int
    e_size: int
    probe_size: int
    segment: int
    """Columns that the Gram matrix is summed up over at a time; 0: all."""
    large: int
    """The padded rows of all X, if the batch is for the kernels of `_triton_hopper`, whose weights have one shape; else 0."""
    gram_columns: int
    """Columns of the tiles of ``gram``."""
    compiled: dict[Any, Any] = field(default_factory=dict)
    """The kernels that Triton has compiled for this batch; see `_launch`."""


@dataclass(frozen=True)
class Tiling:
    """The batches for a list of weights of one device and dtype."""

    device: torch.device
    dtype: torch.dtype
    batches: tuple[TileBatch, ...]
    results: tuple[tuple[int, torch.Size, tuple[int, ...]], ...]
    """Where the penalised gradients go in one block of memory: offset, shape and strides of each."""
    result_size: int


@dataclass(frozen=True)
class _Shape:
    """One weight, read as X (k × K)."""

    index: int
    k: int
    long: int
    tall: bool
    errors: bool
    """Whether rounding errors are staged as well."""
    large: bool = False
    """For the kernels of `_triton_hopper`."""

    @property
    def sides(self) -> tuple[int, int, bool]:
        return self.k, self.long, self.tall

    @property
    def side(self) -> int:
        return _up(self.k, 2 * TILE if self.large else TILE)

    @property
    def padded(self) -> int:
        return _up(self.long, TILE)

    @property
    def x_size(self) -> int:
        return self.side * self.padded * (2 if self.errors else 1)

    @property
    def scratch_bytes(self) -> int:
        return 2 * (self.x_size + self.side**2)

    @property
    def work(self) -> int:
        return self.side**2 * self.padded


def make_tiling(weights: Sequence[Weight], *, keep_errors: bool, tuning: Tuning) -> Tiling:
    """The tables for weights of one device and dtype; ``keep_errors``: short rows are staged with their rounding errors."""
    shapes = []
    for index, (_, weight) in enumerate(weights):
        m, n = weight.shape[0], weight.numel() // weight.shape[0]
        k, long = min(m, n), max(m, n)
        shapes.append(_Shape(index, k, long, m > n, keep_errors and long < tuning.short))
    if _loads_blocks(weights[0][1].device, tuning):
        counts = Counter(shape.sides for shape in shapes)
        shapes = [replace(shape, large=_is_large(shape, counts[shape.sides], tuning)) for shape in shapes]
    shapes.sort(key=lambda shape: (-shape.work, shape.sides))
    batches: list[list[_Shape]] = []
    room = 0
    for shape in shapes:
        if not batches or shape.scratch_bytes > room or not _may_share(shape, batches[-1][-1]):
            batches.append([])
            room = tuning.scratch_bytes
        batches[-1].append(shape)
        room -= shape.scratch_bytes
    results, size = [], 0
    for _, weight in weights:
        results.append((size, weight.shape, weight.stride()))
        size += _up(weight.numel(), 64)
    tables = tuple(_tile_batch(batch, weights, tuning) for batch in batches)
    return Tiling(weights[0][1].device, weights[0][1].dtype, tables, tuple(results), size)


def _is_large(shape: _Shape, count: int, tuning: Tuning) -> bool:
    """Whether a weight, one of ``count`` of its shape, goes to the kernels of `_triton_hopper`."""
    if shape.errors:
        return False
    exceeds = shape.scratch_bytes > tuning.scratch_bytes
    return exceeds or (tuning.block_batches is not None and count > 1 and shape.k >= tuning.block_batches)


def _may_share(shape: _Shape, other: _Shape) -> bool:
    """Whether two weights may be in one batch: of `_triton_hopper` only those of one shape."""
    return shape.large == other.large and (not shape.large or shape.sides == other.sides)


def _loads_blocks(device: torch.device, tuning: Tuning) -> bool:
    if tuning.block_loads is not None:
        return tuning.block_loads
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def _wide_tiles_pay(side: int, count: int, device: torch.device, tuning: Tuning) -> bool:
    """Wide tiles are the faster ones, unless they leave more multiprocessors idle in the last wave of programs."""
    if tuning.wide_gram_tiles is not None:
        return tuning.wide_gram_tiles
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    tiles = [count * len(_tiles(0, side, columns, side, triangle=True)) for columns in (TILE, 2 * TILE)]
    waves = [-(-number // processors) for number in tiles]
    return 2 * waves[1] <= waves[0]


def _tile_batch(shapes: list[_Shape], weights: Sequence[Weight], tuning: Tuning) -> TileBatch:
    device = weights[0][1].device
    segment = tuning.segment if any(shape.long > tuning.long for shape in shapes) else 0
    first = shapes[0]
    large = first.large
    # Segments need a second set of sums: with wide tiles there would not be enough registers.
    wide_gram = large and not segment and _wide_tiles_pay(first.side, len(shapes), device, tuning)
    gram_columns = 2 * TILE if wide_gram else TILE
    apply_columns = 2 * TILE if large else TILE
    rows: list[MatrixRow] = []
    empty = torch.empty(0, len(TileRow._fields), dtype=torch.int64)
    stage_tiles, gram_tiles, wide_tiles, tall_tiles = [empty], [empty], [empty], [empty]
    x_size = e_size = gram_count = probe_size = 0
    for number, shape in enumerate(shapes):
        side, padded = shape.side, shape.padded
        slot, weight = weights[shape.index]
        triangle = _tiles(number, side, gram_columns, side, triangle=True)
        stage_tiles.append(_tiles(number, side, STAGE, padded, rows=STAGE))
        gram_tiles.append(triangle)
        if shape.tall and large:  # `apply_large` has tiles of W as it lies in memory, which is Xᵀ
            tall_tiles.append(_tiles(number, side, TILE, padded, rows=apply_columns))
        else:
            (tall_tiles if shape.tall else wide_tiles).append(_tiles(number, side, apply_columns, padded))
        rows.append(
            MatrixRow(
                weight=weight.data_ptr(),
                x_start=x_size,
                e_start=e_size,
                short=shape.k,
                long=shape.long,
                short_padded=side,
                long_padded=padded,
                is_tall=int(shape.tall),
                error_start=side * padded if shape.errors else 0,
                first_norm=gram_count,
                norm_count=len(triangle),
                slot=slot,
                probe_start=probe_size,
            )
        )
        x_size += shape.x_size
        e_size += side**2
        gram_count += len(triangle)
        probe_size += 2 * side
    stage, gram, wide, tall = (
        torch.cat(tables).to(torch.int32).to(device) for tables in (stage_tiles, gram_tiles, wide_tiles, tall_tiles)
    )
    return TileBatch(
        members=tuple(shape.index for shape in shapes),
        matrices=torch.tensor(rows, dtype=torch.int64).to(device),
        stage_tiles=stage,
        gram_tiles=gram,
        apply_tiles=(wide, tall),
        x_size=x_size,
        e_size=e_size,
        probe_size=probe_size,
        segment=segment,
        large=len(shapes) * first.side if large else 0,
        gram_columns=gram_columns,
    )


def _tiles(number: int, height: int, columns: int, width: int, *, rows: int = TILE, triangle: bool = False) -> Tensor:
    """A `TileRow` for each tile of rows × columns in height × width, neighbours near each other in the list.

    With ``triangle`` only the tiles that have elements on or below the diagonal.
    """
    heights, widths = torch.arange(-(-height // rows)), torch.arange(-(-width // columns))
    down, across = torch.meshgrid(heights, widths, indexing="ij")
    if triangle:
        touches = (down + 1) * rows > across * columns
        down, across = down[touches], across[touches]
    down, across = down.reshape(-1), across.reshape(-1)
    side = _SQUARE if rows == columns else _LARGE_SQUARE
    square = (down * rows // side) * (width // side + 1) + across * columns // side
    order = square.argsort(stable=True)
    return torch.stack(TileRow(torch.full_like(down, number), down, across), dim=-1)[order]  # type: ignore[arg-type]


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
