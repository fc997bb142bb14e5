"""How both ``apply`` kernels end: the tile of E·X in registers is added to the weight or to the gradient."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Triton reads the annotations of its kernels itself, and knows only its own.

import triton
import triton.language as tl


@triton.jit
def halves(values):
    """The left and the right half of a tile (R × C), each (R × C/2)."""
    paired = tl.reshape(values, (values.shape[0], 2, values.shape[1] // 2))
    return tl.split(tl.permute(paired, (0, 2, 1)))


@triton.jit
def _add_quarter(sums, source, target, pitch, rows_left, columns_left, rate, DTYPE: tl.constexpr):
    i = tl.arange(0, sums.shape[0])[:, None]
    j = tl.arange(0, sums.shape[1])[None, :]
    inside = (i < rows_left) & (j < columns_left)
    place = i * pitch + j
    value = tl.load(source + place, mask=inside, other=0.0).to(tl.float32) + rate * sums
    tl.store(target + place, value.to(DTYPE), mask=inside)


@triton.jit
def add(sums, source, target, pitch, rows_left, columns_left, rate, DTYPE: tl.constexpr):
    """target ← source + rate · sums, for the part of a tile that lies inside the matrix.

    Args:
        sums: the tile (R × C), in float32.
        source, target: pointers to the tile's first element.
        pitch: elements from one row to the next.
        rows_left, columns_left: how many rows and columns of the matrix there are from the tile's first element on.
    """
    # A quarter at a time: what is read and written would not fit into the registers beside all the sums.
    WIDTH: tl.constexpr = sums.shape[1] // 4
    left_half, right_half = halves(sums)
    first, second = halves(left_half)
    third, fourth = halves(right_half)
    _add_quarter(first, source, target, pitch, rows_left, columns_left, rate, DTYPE)
    _add_quarter(second, source + WIDTH, target + WIDTH, pitch, rows_left, columns_left - WIDTH, rate, DTYPE)
    _add_quarter(third, source + 2 * WIDTH, target + 2 * WIDTH, pitch, rows_left, columns_left - 2 * WIDTH, rate, DTYPE)
    _add_quarter(
        fourth, source + 3 * WIDTH, target + 3 * WIDTH, pitch, rows_left, columns_left - 3 * WIDTH, rate, DTYPE
    )
