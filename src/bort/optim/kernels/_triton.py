r"""The penalty of a whole model in four launches: grouped Triton kernels.

Every weight is read as X (k × K), its smaller side first: X = W, or Wᵀ where W is tall; the constraint does not care. Then

1. ``stage``   X in half precision (11 bits, as many as TF32 has) into scratch, padded to whole tiles, so that the products
               need no masks and no strides; the rounding error beside it where K is short and the error would be felt,
2. ``gram``    E = X Xᵀ − s·I, one triangle; the products accumulate in float32 and I is subtracted there, before any
               rounding; ‖E‖² of each tile on the way,
3. ``judge``   one program a matrix: residual ‖E‖_F/√k and the stability factor (see `_guard`), which looks closer only
               where ‖E‖_F does not already prove the step stable,
4. ``apply``   E·X, straight into the weight (decoupled) or onto a copy of the gradient (coupled).

A tile table says which matrix and which tile a program works on: one launch serves any number of weights of any shape. No
atomics: the same bits come out every time. Weights may lie in memory in any dense order whose outermost dimension is the
first (channels_last does): a permutation of the columns goes through the formula unchanged.

Where a tile begins is an int64, what is inside it int32: weights of more than 2³¹ elements are fine, and the offsets take
half the registers that pointers would.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton reads the annotations of its kernels itself, and knows only its own.

import triton
import triton.language as tl

# Columns of the matrix table (int64); `_plan` fills it.
FIELDS = 13
TILE = 128
HALF_MAX = tl.constexpr(60000.0)  # of half precision 65504: beyond it the guard is at work, and a bound is as good


@triton.jit
def stage(matrices, tiles, x, FIELDS: tl.constexpr, DTYPE: tl.constexpr, SIZE: tl.constexpr):
    tile = tiles + tl.program_id(0) * 3
    row = matrices + tl.load(tile) * FIELDS
    weight = tl.load(row).to(tl.pointer_type(DTYPE))
    x += tl.multiple_of(tl.load(row + 1), 128)
    k = tl.load(row + 3).to(tl.int32)
    long = tl.load(row + 4).to(tl.int32)
    padded = tl.multiple_of(tl.load(row + 6).to(tl.int32), 128)
    tall = tl.load(row + 7)
    error = tl.multiple_of(tl.load(row + 8), 128)
    top = tl.load(tile + 1) * SIZE
    left = tl.load(tile + 2) * SIZE
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
    FIELDS: tl.constexpr,
    SIZE: tl.constexpr,
    STEP: tl.constexpr,
    SEGMENT: tl.constexpr,
):
    tile = tiles + tl.program_id(0) * 3
    row = matrices + tl.load(tile) * FIELDS
    i = tl.load(tile + 1)
    j = tl.load(tile + 2)
    x += tl.multiple_of(tl.load(row + 1), 128)
    e += tl.multiple_of(tl.load(row + 2), 128)
    k = tl.load(row + 3).to(tl.int32)
    side = tl.multiple_of(tl.load(row + 5).to(tl.int32), 128)
    padded = tl.multiple_of(tl.load(row + 6).to(tl.int32), 128)
    error = tl.multiple_of(tl.load(row + 8), 128)
    steps = padded // STEP
    within = tl.arange(0, SIZE)
    offsets = within[:, None] * padded + tl.arange(0, STEP)[None, :]
    a = x + (i * SIZE).to(tl.int64) * padded
    b = x + (j * SIZE).to(tl.int64) * padded
    # With the rounding errors staged, X ≈ H + L and XXᵀ ≈ HHᵀ + HLᵀ + LHᵀ: the same loop over three panels.
    total_steps = tl.where(error != 0, 3, 1) * steps
    if SEGMENT:
        # Tensor cores cut off what they add to a sum instead of rounding it: over millions of terms that is felt. Here
        # their sums are short ones, added up with proper rounding.
        sums = tl.zeros((SIZE, SIZE), dtype=tl.float32)
        for first in range(0, total_steps, SEGMENT // STEP):
            last = tl.minimum(first + SEGMENT // STEP, total_steps)
            sums += _sums(a, b, offsets, error, steps, first, last, SIZE, STEP)
    else:
        sums = _sums(a, b, offsets, error, steps, 0, total_steps, SIZE, STEP)
    diagonal = (i * SIZE + within[:, None] == j * SIZE + within[None, :]) & (i * SIZE + within[:, None] < k)
    sums = tl.where(diagonal, sums - scale, sums)
    tl.store(norms + tl.program_id(0), tl.sum(sums * sums) * tl.where(i == j, 1.0, 2.0))
    rounded = tl.minimum(tl.maximum(sums, -HALF_MAX), HALF_MAX).to(tl.float16)
    place = within[:, None] * side + within[None, :]
    tl.store(e + ((i * SIZE).to(tl.int64) * side + j * SIZE) + place, rounded)
    if i != j:
        tl.store(e + ((j * SIZE).to(tl.int64) * side + i * SIZE) + place, tl.trans(rounded))


@triton.jit
def judge(
    matrices,
    e,
    norms,
    probes,
    residuals,
    factors,
    rate,
    rate_tensor,
    scale,
    step_limit,
    scale_limit,
    shortened,
    ITERATIONS: tl.constexpr,
    FIELDS: tl.constexpr,
    HAS_RATE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    matrix = tl.program_id(0)
    row = matrices + matrix * FIELDS
    k = tl.load(row + 3)
    side = tl.multiple_of(tl.load(row + 5).to(tl.int32), 128)
    first = tl.load(row + 9)
    count = tl.load(row + 10).to(tl.int32)
    slot = tl.load(row + 11)
    if HAS_RATE:
        rate *= tl.load(rate_tensor).to(tl.float32)
    columns = tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), dtype=tl.float32)
    for start in range(0, count, COLUMNS):
        total += tl.load(norms + first + start + columns, mask=start + columns < count, other=0.0)
    size = tl.sqrt(tl.sum(total))
    tl.store(residuals + slot, size / tl.sqrt(k.to(tl.float32)))
    factor = 1.0
    repelled = rate * scale >= scale_limit
    if (rate * size > step_limit) | repelled:
        e += tl.multiple_of(tl.load(row + 2), 128)
        probes += tl.load(row + 12)
        rows = tl.arange(0, ROWS)
        for start in range(0, side, COLUMNS):
            spread = (start + columns).to(tl.float32)
            tl.store(probes + start + columns, tl.cos(spread * (spread + 1.0) * 0.754877666))
        length = 1.0
        size = 0.0
        for iteration in range(ITERATIONS):
            source = probes + (iteration % 2) * side
            target = probes + (1 - iteration % 2) * side
            tl.debug_barrier()
            square = tl.zeros((COLUMNS,), dtype=tl.float32)
            for start in range(0, side, COLUMNS):
                value = tl.load(source + start + columns)
                square += value * value
            length = tl.maximum(tl.sqrt(tl.sum(square)), 1e-30)
            square_out = tl.zeros((ROWS,), dtype=tl.float32)
            for start in range(0, side, ROWS):
                sums = tl.zeros((ROWS,), dtype=tl.float32)
                for across in range(0, side, COLUMNS):
                    line = e + (start + rows[:, None]).to(tl.int64) * side + across + columns[None, :]
                    value = tl.load(source + across + columns) / length
                    sums += tl.sum(tl.load(line).to(tl.float32) * value[None, :], axis=1)
                tl.store(target + start + rows, sums)
                square_out += sums * sums
            size = tl.sqrt(tl.sum(square_out))
        # E was rounded to 11 bits: stay a lower estimate all the same.
        if (rate * size * 0.999 > step_limit) | repelled:
            factor = shortened / (rate * tl.maximum(size, scale))
    tl.store(factors + matrix, factor)


@triton.jit
def halves(values):
    """The left and the right half of a tile."""
    paired = tl.reshape(values, (values.shape[0], 2, values.shape[1] // 2))
    return tl.split(tl.permute(paired, (0, 2, 1)))


@triton.jit
def _finish(sums, source, target, pitch, rows_left, columns_left, rate, DTYPE: tl.constexpr):
    i = tl.arange(0, sums.shape[0])[:, None]
    j = tl.arange(0, sums.shape[1])[None, :]
    inside = (i < rows_left) & (j < columns_left)
    place = i * pitch + j
    value = tl.load(source + place, mask=inside, other=0.0).to(tl.float32) + rate * sums
    tl.store(target + place, value.to(DTYPE), mask=inside)


@triton.jit
def add(sums, source, target, pitch, rows_left, columns_left, rate, DTYPE: tl.constexpr):
    """target ← source + rate · sums, as far as the matrix goes."""
    # A quarter at a time: what is read and written beside all the sums would not fit into the registers.
    WIDTH: tl.constexpr = sums.shape[1] // 4
    left_half, right_half = halves(sums)
    first, second = halves(left_half)
    third, fourth = halves(right_half)
    _finish(first, source, target, pitch, rows_left, columns_left, rate, DTYPE)
    _finish(second, source + WIDTH, target + WIDTH, pitch, rows_left, columns_left - WIDTH, rate, DTYPE)
    _finish(third, source + 2 * WIDTH, target + 2 * WIDTH, pitch, rows_left, columns_left - 2 * WIDTH, rate, DTYPE)
    _finish(fourth, source + 3 * WIDTH, target + 3 * WIDTH, pitch, rows_left, columns_left - 3 * WIDTH, rate, DTYPE)


@triton.jit
def apply(
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
    FIELDS: tl.constexpr,
):
    tile = tiles + tl.program_id(0) * 3
    matrix = tl.load(tile)
    row = matrices + matrix * FIELDS
    k = tl.load(row + 3).to(tl.int32)
    long = tl.load(row + 4).to(tl.int32)
    side = tl.multiple_of(tl.load(row + 5).to(tl.int32), 128)
    padded = tl.multiple_of(tl.load(row + 6).to(tl.int32), 128)
    top = tl.load(tile + 1) * ROWS
    left = tl.load(tile + 2) * COLUMNS
    e += tl.multiple_of(tl.load(row + 2), 128)
    x += tl.multiple_of(tl.load(row + 1), 128) + left
    r = tl.arange(0, ROWS)
    c = tl.arange(0, COLUMNS)
    depth = tl.arange(0, STEP)
    # W is X or, where it is tall, Xᵀ. E is symmetric, so (E·X)ᵀ = Xᵀ·E: computed the way it is stored.
    if TALL:
        e += top
        from_x = depth[None, :] * padded + c[:, None]
        from_e = depth[:, None] * side + r[None, :]
        sums = tl.zeros((COLUMNS, ROWS), dtype=tl.float32)
        for _ in range(0, side, STEP):
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
        for _ in range(0, side, STEP):
            sums = tl.dot(tl.load(e + from_e), tl.load(x + from_x), sums)
            x += STEP * padded
            e += STEP
        pitch = long
        start = top.to(tl.int64) * long + left
        rows_left = k - top
        columns_left = long - left
    if HAS_RATE:
        rate *= tl.load(rate_tensor).to(tl.float32)
    rate *= tl.load(factors + matrix)
    if HAS_SKIP:
        rows_left = tl.where(tl.load(skip) == 0, rows_left, 0)
    if COUPLED:
        source = tl.load(gradients + matrix * 2).to(tl.pointer_type(DTYPE)) + start
        target = tl.load(gradients + matrix * 2 + 1).to(tl.pointer_type(DTYPE)) + start
    else:
        source = tl.load(row).to(tl.pointer_type(DTYPE)) + start
        target = source
    add(sums, source, target, pitch, rows_left, columns_left, rate, DTYPE)
