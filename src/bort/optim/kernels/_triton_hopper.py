"""The two products of large weights on GPUs that have a tensor memory accelerator (NVIDIA Hopper and later).

A weight that needs more scratch than a whole batch may take is launched on its own, others of one shape together. Their
operands then have one shape each, which the accelerator can be given beforehand: it loads whole blocks by itself, and the
registers that addresses would take are free for larger tiles. The mathematics are those of ``gram`` and ``apply`` in
`_triton`, without rounding errors; only the loads and the sizes of the tiles differ. In scratch the matrices X lie one below
the other, and so do the E: that of row i of the matrix table begins at row i·(k padded).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton reads the annotations of its kernels itself, and knows only its own.

import triton
import triton.language as tl

from bort.optim.kernels._columns import (
    ACROSS,
    ADDRESS_COLUMNS,
    DOWN,
    E_START,
    GRADIENT,
    LONG,
    LONG_PADDED,
    MATRIX,
    MATRIX_COLUMNS,
    RESULT,
    SHORT,
    SHORT_PADDED,
    SLOT,
    TILE_COLUMNS,
    WEIGHT,
)
from bort.optim.kernels._triton import HALF_MAX
from bort.optim.kernels._triton_add import add, halves


@triton.jit
def _sums(rows, columns, top, left, first, last, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    """ROWS rows of X from ``top`` times COLUMNS rows from ``left``, over the columns from ``first`` to ``last``."""
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for at in range(first, last, STEP):
        sums = tl.dot(rows.load([top, at]), columns.load([left, at]).T, sums)
    return sums


@triton.jit
def gram_large(
    matrices,
    tiles,
    rows,
    columns,
    e,
    norms,
    scale,
    scales,
    skip,
    HAS_SCALES: tl.constexpr,
    HAS_SKIP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    SEGMENT: tl.constexpr,
):
    """E ← X Xᵀ − s·I. One program a tile of ROWS × COLUMNS that touches the diagonal or lies below it.

    Args:
        matrices, tiles, e, norms, scale, scales, skip, SEGMENT: as in ``gram``.
        rows: all X as blocks of ROWS × STEP.
        columns: all X as blocks of COLUMNS × STEP.
    """
    if HAS_SKIP and tl.load(skip) != 0:
        return
    tile = tiles + tl.program_id(0) * TILE_COLUMNS
    matrix = tl.load(tile + MATRIX)
    row = matrices + matrix * MATRIX_COLUMNS
    k = tl.load(row + SHORT).to(tl.int32)
    side = tl.multiple_of(tl.load(row + SHORT_PADDED).to(tl.int32), 128)
    padded = tl.multiple_of(tl.load(row + LONG_PADDED).to(tl.int32), 128)
    e += tl.multiple_of(tl.load(row + E_START), 128)
    top = tl.load(tile + DOWN) * ROWS
    left = tl.load(tile + ACROSS) * COLUMNS
    above = matrix * side + top
    beside = matrix * side + left
    if SEGMENT:
        sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for first in range(0, padded, SEGMENT):
            last = tl.minimum(first + SEGMENT, padded)
            sums += _sums(rows, columns, above, beside, first, last, ROWS, COLUMNS, STEP)
    else:
        sums = _sums(rows, columns, above, beside, 0, padded, ROWS, COLUMNS, STEP)
    r = top + tl.arange(0, ROWS)[:, None]
    c = left + tl.arange(0, COLUMNS)[None, :]
    if HAS_SCALES:
        scale = tl.load(scales + tl.load(row + SLOT))
    sums = tl.where((r == c) & (r < k), sums - scale, sums)
    if HAS_SCALES:
        sums /= scale
    # A tile may cross the diagonal. In ‖E‖² what lies below it counts twice, the diagonal once, the rest not. What lies above
    # is written by another tile too, with the same bits, since x·y = y·x: a mask would cost more, it splits the stores.
    tl.store(norms + tl.program_id(0), tl.sum(sums * sums * tl.where(c < r, 2.0, tl.where(c == r, 1.0, 0.0))))
    rounded = tl.minimum(tl.maximum(sums, -HALF_MAX), HALF_MAX).to(tl.float16)
    tl.store(e + (r.to(tl.int64) * side + c), rounded)
    tl.store(e + (c.to(tl.int64) * side + r), rounded)


@triton.jit
def apply_large(
    matrices,
    tiles,
    x,
    e,
    factors,
    addresses,
    rate_at,
    skip,
    DTYPE: tl.constexpr,
    COUPLED: tl.constexpr,
    HAS_SKIP: tl.constexpr,
    TALL: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
):
    """W ← W − rate·E·X, or result ← gradient + rate·E·X. One program a tile of ROWS × COLUMNS of W as it lies in memory.

    Args:
        x: all X as blocks of STEP × COLUMNS, or STEP × ROWS if TALL.
        e: all E as blocks of ROWS × STEP, or STEP × COLUMNS if TALL.
        The others: as in ``apply``. In the tile table of a tall weight, ``down`` counts COLUMNS and ``across`` ROWS.
    """
    tile = tiles + tl.program_id(0) * TILE_COLUMNS
    matrix = tl.load(tile + MATRIX)
    row = matrices + matrix * MATRIX_COLUMNS
    k = tl.load(row + SHORT).to(tl.int32)
    long = tl.load(row + LONG).to(tl.int32)
    side = tl.multiple_of(tl.load(row + SHORT_PADDED).to(tl.int32), 128)
    above = matrix * side
    end = side
    if HAS_SKIP:
        skipped = tl.load(skip) != 0
        if not COUPLED and skipped:
            return
        end = tl.where(skipped, 0, side)  # the gradient is copied, with nothing added
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    if TALL:
        left = tl.load(tile + DOWN) * COLUMNS
        top = tl.load(tile + ACROSS) * ROWS
        for at in range(0, end, STEP):
            sums = tl.dot(x.load([above + at, top]).T, e.load([above + at, left]), sums)
        height = long
        pitch = k
    else:
        top = tl.load(tile + DOWN) * ROWS
        left = tl.load(tile + ACROSS) * COLUMNS
        for at in range(0, end, STEP):
            sums = tl.dot(e.load([above + top, at]), x.load([above + at, left]), sums)
        height = k
        pitch = long
    rate = tl.load(rate_at).to(tl.float32) * tl.load(factors + matrix)
    if not COUPLED:
        rate = -rate
    if HAS_SKIP:
        rate = tl.where(skipped, 0.0, rate)
    rows_left = height - top
    start = top.to(tl.int64) * pitch + left
    if COUPLED:
        address = addresses + matrix * ADDRESS_COLUMNS
        source = tl.load(address + GRADIENT).to(tl.pointer_type(DTYPE)) + start
        target = tl.load(address + RESULT).to(tl.pointer_type(DTYPE)) + start
    else:
        source = tl.load(row + WEIGHT).to(tl.pointer_type(DTYPE)) + start
        target = source
    HALF: tl.constexpr = COLUMNS // 2
    left_half, right_half = halves(sums)
    add(left_half, source, target, pitch, rows_left, pitch - left, rate, DTYPE)
    add(right_half, source + HALF, target + HALF, pitch, rows_left, pitch - left - HALF, rate, DTYPE)
