"""The tables through which the kernels find their work: what each column holds, described once.

A launch serves many weights, so it is given tables instead of one weight's pointer and shape. The host fills rows by name,
``MatrixRow(weight=…, …)``; a kernel finds a matrix at ``row = matrices + number * MATRIX_COLUMNS`` and reads a field of it as
``tl.load(row + SLOT)``. Offsets are in elements. Those of X, E and the rounding errors, and padded sizes, are multiples of
``TILE``, and the kernels tell the compiler so.
"""

from typing import NamedTuple

import triton.language as tl

TILE = 128
"""The side that scratch is padded to, and of the tiles of the products."""


class MatrixRow(NamedTuple):
    """A row of the matrix table, int64: one weight W, read as X (k × K), its short side first."""

    weight: int
    """The address of W."""
    x_start: int
    """Where X begins in the scratch for X, (k padded) × (K padded) numbers of half precision."""
    e_start: int
    """Where E = XXᵀ − s·I begins in the scratch for E, (k padded) × (k padded) numbers of half precision."""
    short: int
    """k, the rows of X."""
    long: int
    """K, the columns of X."""
    short_padded: int
    long_padded: int
    is_tall: int
    """1 if X = Wᵀ, 0 if X = W."""
    error_start: int
    """Where the rounding errors of X begin, counted from ``x_start``; 0 if they are not kept."""
    first_norm: int
    """Where the ‖E‖² of its tiles begin in the array of all tiles' (one a program of ``gram``)."""
    norm_count: int
    slot: int
    """Where its residual goes."""
    probe_start: int
    """Where its two vectors for the power iteration begin, each of k padded numbers."""


class TileRow(NamedTuple):
    """A row of a tile table, int32: what one program of a launch works on."""

    matrix: int
    """The row of the matrix table."""
    down: int
    """Which tile, counted in tiles along the short side."""
    across: int
    """Which tile, counted in tiles along the other side: the long one, or the short one again in ``gram``."""


class AddressRow(NamedTuple):
    """A row of the address table of a coupled penalty, int64: one for each row of the matrix table."""

    gradient: int
    """The address of the gradient that is read, laid out in memory as W is."""
    result: int
    """The address of the penalised gradient that is written."""


# What the kernels add to a row's address. Triton reads globals only if they are constexpr.
MATRIX_COLUMNS = tl.constexpr(len(MatrixRow._fields))
WEIGHT = tl.constexpr(MatrixRow._fields.index("weight"))
X_START = tl.constexpr(MatrixRow._fields.index("x_start"))
E_START = tl.constexpr(MatrixRow._fields.index("e_start"))
SHORT = tl.constexpr(MatrixRow._fields.index("short"))
LONG = tl.constexpr(MatrixRow._fields.index("long"))
SHORT_PADDED = tl.constexpr(MatrixRow._fields.index("short_padded"))
LONG_PADDED = tl.constexpr(MatrixRow._fields.index("long_padded"))
IS_TALL = tl.constexpr(MatrixRow._fields.index("is_tall"))
ERROR_START = tl.constexpr(MatrixRow._fields.index("error_start"))
FIRST_NORM = tl.constexpr(MatrixRow._fields.index("first_norm"))
NORM_COUNT = tl.constexpr(MatrixRow._fields.index("norm_count"))
SLOT = tl.constexpr(MatrixRow._fields.index("slot"))
PROBE_START = tl.constexpr(MatrixRow._fields.index("probe_start"))

TILE_COLUMNS = tl.constexpr(len(TileRow._fields))
MATRIX = tl.constexpr(TileRow._fields.index("matrix"))
DOWN = tl.constexpr(TileRow._fields.index("down"))
ACROSS = tl.constexpr(TileRow._fields.index("across"))

ADDRESS_COLUMNS = tl.constexpr(len(AddressRow._fields))
GRADIENT = tl.constexpr(AddressRow._fields.index("gradient"))
RESULT = tl.constexpr(AddressRow._fields.index("result"))
