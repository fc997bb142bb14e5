r"""The penalty of a whole param group in four launches: grouped Triton kernels.

Every weight W is read as X (k × K), its short side first: X = W, or Wᵀ where W is tall; the constraint is the same. Then

1. ``stage``   copies X in half precision (11 bits, as many as TF32 has) into scratch, padded to whole tiles, so that the
               products need no masks and no strides; where K is short enough for rounding to matter, the rounding error too,
2. ``gram``    computes E = X Xᵀ − s·I, one triangle; the products accumulate in float32 and s·I is subtracted there, before
               any rounding; where each weight has its own s, E is divided by it; it also leaves ‖E‖² of each tile,
3. ``judge``   one program a matrix: the residual ‖E‖_F/√k and the stability factor (see `_stability`), by power iteration
               where ‖E‖_F does not already prove the step stable,
4. ``apply``   adds E·X to the weight in place (decoupled), or to a copy of the gradient (coupled).

A tile table tells each program which matrix and which tile it works on (`_columns`): one launch serves any number of weights
of any shape. There are no atomics: the same bits come out every time. Weights may lie in memory in any dense order whose
outermost dimension is the first (as in channels_last): a permutation of the columns goes through the formula unchanged.

The offset of a tile is an int64, offsets inside it are int32: weights of more than 2³¹ elements work, and the offsets take
half the registers that pointers would.
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
    ERROR_START,
    GRADIENT,
    IS_TALL,
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
    X_START,
)
from bort.optim.kernels._triton_add import add

# Values are clamped below float16's 65504: the guard shortens steps of that size in any case.
HALF_MAX = tl.constexpr(60000.0)


@triton.jit
def stage(matrices, tiles, x, skip, DTYPE: tl.constexpr, HAS_SKIP: tl.constexpr, SIZE: tl.constexpr):
    """X ← W or Wᵀ in half precision. One program a tile of SIZE × SIZE of X.

    Args:
        matrices: the matrix table, (matrices, MATRIX_COLUMNS).
        tiles: the tile table, (programs, TILE_COLUMNS).
        x: scratch for X of all matrices, and for their rounding errors.
        skip: not 0 if nothing is to be computed; read only if HAS_SKIP.
        DTYPE: of the weights.
    """
    if HAS_SKIP and tl.load(skip) != 0:
        return
    tile = tiles + tl.program_id(0) * TILE_COLUMNS
    row = matrices + tl.load(tile + MATRIX) * MATRIX_COLUMNS
    weight = tl.load(row + WEIGHT).to(tl.pointer_type(DTYPE))
    x += tl.multiple_of(tl.load(row + X_START), 128)
    k = tl.load(row + SHORT).to(tl.int32)
    long = tl.load(row + LONG).to(tl.int32)
    padded = tl.multiple_of(tl.load(row + LONG_PADDED).to(tl.int32), 128)
    tall = tl.load(row + IS_TALL)
    error = tl.multiple_of(tl.load(row + ERROR_START), 128)
    top = tl.load(tile + DOWN) * SIZE
    left = tl.load(tile + ACROSS) * SIZE
    first = tl.arange(0, SIZE)[:, None]
    second = tl.arange(0, SIZE)[None, :]
    if tall != 0:
        inside = (left + first < long) & (top + second < k)
        weight += left.to(tl.int64) * k + top
        value = tl.trans(tl.load(weight + (first * k + second), mask=inside, other=0.0).to(tl.float32))
    else:
        inside = (top + first < k) & (left + second < long)
        weight += top.to(tl.int64) * long + left
        value = tl.load(weight + (first * long + second), mask=inside, other=0.0).to(tl.float32)
    value = tl.minimum(tl.maximum(value, -HALF_MAX), HALF_MAX)
    near = value.to(tl.float16)
    x += top.to(tl.int64) * padded + left
    tl.store(x + (first * padded + second), near)
    if error != 0:
        tl.store(x + error + (first * padded + second), (value - near.to(tl.float32)).to(tl.float16))


@triton.jit
def _sums(a, b, offsets, error, steps, first, last, SIZE: tl.constexpr, STEP: tl.constexpr):
    """Two panels of X multiplied, (SIZE × SIZE): steps ``first`` to ``last`` of STEP columns each.

    Steps count on from X·Xᵀ to X·Lᵀ and L·Xᵀ, with L the rounding errors, ``steps`` in each.
    """
    sums = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    for step in range(first, last):
        panel = step // steps
        at = (step - panel * steps) * STEP
        left = tl.load(a + (at + tl.where(panel == 2, error, 0)) + offsets)
        right = tl.load(b + (at + tl.where(panel == 1, error, 0)) + offsets)
        sums = tl.dot(left, tl.trans(right), sums)
    return sums


@triton.jit
def gram(
    matrices,
    tiles,
    x,
    e,
    norms,
    scale,
    scales,
    skip,
    HAS_SCALES: tl.constexpr,
    HAS_SKIP: tl.constexpr,
    SIZE: tl.constexpr,
    STEP: tl.constexpr,
    SEGMENT: tl.constexpr,
):
    """E ← X Xᵀ − s·I. One program a tile of SIZE × SIZE on or below the diagonal, which it also writes above it.

    Args:
        matrices: the matrix table, (matrices, MATRIX_COLUMNS).
        tiles: the tile table, (programs, TILE_COLUMNS).
        x: scratch that holds X of all matrices.
        e: scratch for E of all matrices, in half precision.
        norms: ‖E‖² of each tile goes here, that of a tile below the diagonal twice, (programs,).
        scale: s, of all matrices; not used if HAS_SCALES.
        scales: s of each matrix, by its slot; E is divided by it. Read only if HAS_SCALES.
        skip: not 0 if nothing is to be computed; read only if HAS_SKIP.
        STEP: columns of X that are multiplied at a time.
        SEGMENT: columns after which a sum is closed and added to the total; 0: never.
    """
    if HAS_SKIP and tl.load(skip) != 0:
        return
    tile = tiles + tl.program_id(0) * TILE_COLUMNS
    row = matrices + tl.load(tile + MATRIX) * MATRIX_COLUMNS
    i = tl.load(tile + DOWN)
    j = tl.load(tile + ACROSS)
    x += tl.multiple_of(tl.load(row + X_START), 128)
    e += tl.multiple_of(tl.load(row + E_START), 128)
    k = tl.load(row + SHORT).to(tl.int32)
    side = tl.multiple_of(tl.load(row + SHORT_PADDED).to(tl.int32), 128)
    padded = tl.multiple_of(tl.load(row + LONG_PADDED).to(tl.int32), 128)
    error = tl.multiple_of(tl.load(row + ERROR_START), 128)
    steps = padded // STEP
    within = tl.arange(0, SIZE)
    offsets = within[:, None] * padded + tl.arange(0, STEP)[None, :]
    a = x + (i * SIZE).to(tl.int64) * padded
    b = x + (j * SIZE).to(tl.int64) * padded
    # With the rounding errors staged, X ≈ H + L and XXᵀ ≈ HHᵀ + HLᵀ + LHᵀ: the same loop over three panels.
    total_steps = tl.where(error != 0, 3, 1) * steps
    if SEGMENT:
        # Tensor cores truncate when they add to a sum, and over millions of terms that becomes a visible error. Here
        # their sums are short, and are added up with proper rounding.
        sums = tl.zeros((SIZE, SIZE), dtype=tl.float32)
        for first in range(0, total_steps, SEGMENT // STEP):
            last = tl.minimum(first + SEGMENT // STEP, total_steps)
            sums += _sums(a, b, offsets, error, steps, first, last, SIZE, STEP)
    else:
        sums = _sums(a, b, offsets, error, steps, 0, total_steps, SIZE, STEP)
    diagonal = (i * SIZE + within[:, None] == j * SIZE + within[None, :]) & (i * SIZE + within[:, None] < k)
    if HAS_SCALES:
        scale = tl.load(scales + tl.load(row + SLOT))
    sums = tl.where(diagonal, sums - scale, sums)
    if HAS_SCALES:
        sums /= scale
    tl.store(norms + tl.program_id(0), tl.sum(sums * sums) * tl.where(i == j, 1.0, 2.0))
    rounded = tl.minimum(tl.maximum(sums, -HALF_MAX), HALF_MAX).to(tl.float16)
    place = within[:, None] * side + within[None, :]
    tl.store(e + ((i * SIZE).to(tl.int64) * side + j * SIZE) + place, rounded)
    if i != j:
        tl.store(e + ((j * SIZE).to(tl.int64) * side + i * SIZE) + place, tl.trans(rounded))


@triton.jit
def apply(
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
    """W ← W − rate·E·X, or result ← gradient + rate·E·X. One program a tile of ROWS × COLUMNS of X.

    Args:
        matrices: the matrix table, (matrices, MATRIX_COLUMNS).
        tiles: the tile table, (programs, TILE_COLUMNS): of wide weights only, or of TALL ones only.
        x, e: scratch that holds X and E of all matrices.
        factors: the stability factor of each matrix, (matrices,).
        addresses: the address table, (matrices, ADDRESS_COLUMNS); read only if COUPLED.
        rate_at: where the rate is that E·X is multiplied by.
        skip: not 0 if the weights have to stay as they are, or the results are to be the gradients; read only if HAS_SKIP.
        DTYPE: of weights and gradients.
        STEP: columns of E that are multiplied at a time.
    """
    tile = tiles + tl.program_id(0) * TILE_COLUMNS
    matrix = tl.load(tile + MATRIX)
    row = matrices + matrix * MATRIX_COLUMNS
    k = tl.load(row + SHORT).to(tl.int32)
    long = tl.load(row + LONG).to(tl.int32)
    side = tl.multiple_of(tl.load(row + SHORT_PADDED).to(tl.int32), 128)
    padded = tl.multiple_of(tl.load(row + LONG_PADDED).to(tl.int32), 128)
    top = tl.load(tile + DOWN) * ROWS
    left = tl.load(tile + ACROSS) * COLUMNS
    e += tl.multiple_of(tl.load(row + E_START), 128)
    x += tl.multiple_of(tl.load(row + X_START), 128) + left
    end = side
    if HAS_SKIP:
        skipped = tl.load(skip) != 0
        if not COUPLED and skipped:
            return
        end = tl.where(skipped, 0, side)  # the gradient is copied, with nothing added
    r = tl.arange(0, ROWS)
    c = tl.arange(0, COLUMNS)
    depth = tl.arange(0, STEP)
    # A tall W is Xᵀ, and E is symmetric: (E·X)ᵀ = Xᵀ·E, computed in the order in which W is stored.
    if TALL:
        e += top
        from_x = depth[None, :] * padded + c[:, None]
        from_e = depth[:, None] * side + r[None, :]
        sums = tl.zeros((COLUMNS, ROWS), dtype=tl.float32)
        for _ in range(0, end, STEP):
            sums = tl.dot(tl.load(x + from_x), tl.load(e + from_e), sums)
            x += STEP * padded
            e += STEP * side
        pitch = k
        start = left.to(tl.int64) * k + top
        rows_left = long - left
        columns_left = k - top
    else:
        e += top.to(tl.int64) * side
        from_x = depth[:, None] * padded + c[None, :]
        from_e = r[:, None] * side + depth[None, :]
        sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for _ in range(0, end, STEP):
            sums = tl.dot(tl.load(e + from_e), tl.load(x + from_x), sums)
            x += STEP * padded
            e += STEP
        pitch = long
        start = top.to(tl.int64) * long + left
        rows_left = k - top
        columns_left = long - left
    rate = tl.load(rate_at).to(tl.float32) * tl.load(factors + matrix)
    if not COUPLED:
        rate = -rate
    if HAS_SKIP:
        rate = tl.where(skipped, 0.0, rate)  # the factor has not been computed
    if COUPLED:
        source = tl.load(addresses + matrix * ADDRESS_COLUMNS + GRADIENT).to(tl.pointer_type(DTYPE)) + start
        target = tl.load(addresses + matrix * ADDRESS_COLUMNS + RESULT).to(tl.pointer_type(DTYPE)) + start
    else:
        source = tl.load(row + WEIGHT).to(tl.pointer_type(DTYPE)) + start
        target = source
    add(sums, source, target, pitch, rows_left, columns_left, rate, DTYPE)
