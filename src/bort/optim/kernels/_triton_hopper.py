"""The two products of one large weight on GPUs that have a tensor memory accelerator (NVIDIA Hopper and later).

A weight too large to share its scratch with others is launched alone. Its operands then have one shape, which the accelerator
can be told of beforehand: it fetches whole blocks by itself, and the registers that addresses took go into larger tiles. The
mathematics are those of ``gram`` and ``apply`` in `_triton`; only who loads, and how much at a time, differs.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton reads the annotations of its kernels itself, and knows only its own.

import triton
import triton.language as tl

from bort.optim.kernels._triton import HALF_MAX, add, halves


@triton.jit
def _sums(rows, columns, top, left, first, last, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
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
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    SEGMENT: tl.constexpr,
):
    tile = tiles + tl.program_id(0) * 3
    k = tl.load(matrices + 3).to(tl.int32)
    side = tl.multiple_of(tl.load(matrices + 5).to(tl.int32), 128)
    padded = tl.multiple_of(tl.load(matrices + 6).to(tl.int32), 128)
    top = tl.load(tile + 1) * ROWS
    left = tl.load(tile + 2) * COLUMNS
    if SEGMENT:
        sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for first in range(0, padded, SEGMENT):
            last = tl.minimum(first + SEGMENT, padded)
            sums += _sums(rows, columns, top, left, first, last, ROWS, COLUMNS, STEP)
    else:
        sums = _sums(rows, columns, top, left, 0, padded, ROWS, COLUMNS, STEP)
    r = top + tl.arange(0, ROWS)[:, None]
    c = left + tl.arange(0, COLUMNS)[None, :]
    sums = tl.where((r == c) & (r < k), sums - scale, sums)
    # A tile may cross the diagonal. Its lower part counts, twice but for the diagonal itself; what it has above is written
    # by another tile too, in the same bits, since x·y = y·x: cheaper than a mask, which would cut the stores into pieces.
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
    gradients,
    rate,
    rate_tensor,
    skip,
    DTYPE: tl.constexpr,
    COUPLED: tl.constexpr,
    HAS_RATE: tl.constexpr,
    HAS_SKIP: tl.constexpr,
    TALL: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
):
    """A tile of ROWS × COLUMNS of the weight as it lies in memory: of E·X or, where it is tall, of Xᵀ·E."""
    tile = tiles + tl.program_id(0) * 3
    k = tl.load(matrices + 3).to(tl.int32)
    long = tl.load(matrices + 4).to(tl.int32)
    side = tl.multiple_of(tl.load(matrices + 5).to(tl.int32), 128)
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    if TALL:
        left = tl.load(tile + 1) * COLUMNS
        top = tl.load(tile + 2) * ROWS
        for at in range(0, side, STEP):
            sums = tl.dot(x.load([at, top]).T, e.load([at, left]), sums)
        height = long
        pitch = k
    else:
        top = tl.load(tile + 1) * ROWS
        left = tl.load(tile + 2) * COLUMNS
        for at in range(0, side, STEP):
            sums = tl.dot(e.load([top, at]), x.load([at, left]), sums)
        height = k
        pitch = long
    if HAS_RATE:
        rate *= tl.load(rate_tensor).to(tl.float32)
    rate *= tl.load(factors)
    rows_left = height - top
    if HAS_SKIP:
        rows_left = tl.where(tl.load(skip) == 0, rows_left, 0)
    start = top.to(tl.int64) * pitch + left
    if COUPLED:
        source = tl.load(gradients).to(tl.pointer_type(DTYPE)) + start
        target = tl.load(gradients + 1).to(tl.pointer_type(DTYPE)) + start
    else:
        source = tl.load(matrices).to(tl.pointer_type(DTYPE)) + start
        target = source
    HALF: tl.constexpr = COLUMNS // 2
    left_half, right_half = halves(sums)
    add(left_half, source, target, pitch, rows_left, pitch - left, rate, DTYPE)
    add(right_half, source + HALF, target + HALF, pitch, rows_left, pitch - left - HALF, rate, DTYPE)
