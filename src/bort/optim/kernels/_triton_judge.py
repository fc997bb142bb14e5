"""The residual and the stability factor of each matrix, on the device: `_stability` as a Triton kernel."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton reads the annotations of its kernels itself, and knows only its own.

import triton
import triton.language as tl

from bort.optim.kernels._columns import (
    E_START,
    FIRST_NORM,
    MATRIX_COLUMNS,
    NORM_COUNT,
    PROBE_START,
    SHORT,
    SHORT_PADDED,
    SLOT,
)


@triton.jit
def judge(
    matrices,
    e,
    norms,
    probes,
    residuals,
    factors,
    rate_at,
    scale,
    scales,
    step_limit,
    scale_limit,
    shortened,
    skip,
    ITERATIONS: tl.constexpr,
    IS_ADAPTIVE: tl.constexpr,
    HAS_SKIP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One program a matrix.

    Args:
        matrices: the matrix table, (matrices, MATRIX_COLUMNS).
        e: scratch that holds E of all matrices.
        norms: ‖E‖² of each tile, by program of ``gram``.
        probes: scratch for two vectors a matrix.
        residuals: ‖E‖_F/√k goes to the matrix's slot.
        factors: the stability factor of each matrix goes here, (matrices,); if IS_ADAPTIVE, times s.
        rate_at: where a = α·λ is.
        scale: s; not used if IS_ADAPTIVE.
        scales: s of each matrix, by its slot. Read only if IS_ADAPTIVE: ``e`` then holds E/s, and the step is that of E.
        step_limit, scale_limit, shortened: `_stability.Limits`.
        skip: not 0 if the residuals have to stay as they are; read only if HAS_SKIP.
        ROWS, COLUMNS: of the tiles in which E is multiplied with a vector.
    """
    if HAS_SKIP and tl.load(skip) != 0:
        return
    matrix = tl.program_id(0)
    row = matrices + matrix * MATRIX_COLUMNS
    k = tl.load(row + SHORT)
    side = tl.multiple_of(tl.load(row + SHORT_PADDED).to(tl.int32), 128)
    first = tl.load(row + FIRST_NORM)
    count = tl.load(row + NORM_COUNT).to(tl.int32)
    slot = tl.load(row + SLOT)
    rate = tl.load(rate_at).to(tl.float32)
    columns = tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), dtype=tl.float32)
    for start in range(0, count, COLUMNS):
        total += tl.load(norms + first + start + columns, mask=start + columns < count, other=0.0)
    unit = 1.0
    if IS_ADAPTIVE:
        scale = tl.load(scales + slot)
        unit = scale
    size = unit * tl.sqrt(tl.sum(total))
    tl.store(residuals + slot, size / tl.sqrt(k.to(tl.float32)))
    factor = 1.0
    repelled = rate * scale >= scale_limit
    if (rate * size > step_limit) | repelled:
        e += tl.multiple_of(tl.load(row + E_START), 128)
        probes += tl.load(row + PROBE_START)
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
            size = unit * tl.sqrt(tl.sum(square_out))
        # E was rounded to 11 bits, which may have raised the estimate by 2⁻¹¹: it has to stay a lower one.
        if (rate * size * 0.999 > step_limit) | repelled:
            factor = shortened / (rate * tl.maximum(size, scale))
    tl.store(factors + matrix, factor * unit)
