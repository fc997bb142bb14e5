r"""What a way of computing a sharded penalty costs, and which one is the cheapest: bytes, calls and FLOPs of one rank.

For a matrix of m × n = short side k times long side K, cut in R equal parts, b bytes an element:

========  ======================  =====  ==================  ==========================================================
route     bytes sent and received calls  FLOPs of a rank     works for
========  ======================  =====  ==================  ==========================================================
reduce    4·k(k+1)·(1 − 1/R)      1      4·k²K/R             cuts across the long side: triangles of Grams are summed
gather    b·kK·(1 − 1/R)          2      4·k²K/R             cuts across the short side: each rank its rows of E·X
own       2·b·kK/R·(1 − 1/R)      2      4·k²K on the owner  all: whole matrices go to owners, directions come back
========  ======================  =====  ==================  ==========================================================

Calls are those of a round of many weights, not of each weight. (FLOPs are of whole products, though a kernel may compute
only one triangle of a Gram matrix: a FLOP rate that is to fit has to be measured by the same count.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bort.optim.sharded._routing import current_routing


@dataclass(frozen=True)
class Machine:
    """What the estimate knows of the hardware. The defaults only have to be right to a factor of a few."""

    flops: float
    """Floating point operations a second of one rank."""
    bandwidth: float
    """Bytes a second that a rank can send and receive in a collective."""
    latency: float
    """Seconds of a small collective."""


MACHINES = {"cuda": Machine(2e14, 1e11, 3e-5), "cpu": Machine(3e10, 5e8, 5e-4)}


@dataclass(frozen=True)
class Estimate:
    """Of one rank, in one step."""

    size: float
    """Bytes sent and received."""
    calls: int
    flops: float
    """Of the busiest rank."""

    def seconds(self, machine: Machine) -> float:
        return self.size / machine.bandwidth + self.calls * machine.latency + self.flops / machine.flops


@dataclass(frozen=True)
class Matrix:
    """What the costs of one weight depend on."""

    rows: int
    columns: int
    parts: int
    """In how many parts it is cut."""
    cut_along_long_side: bool
    """Whether the cuts are across the side that its smaller Gram matrix sums over."""
    element_bytes: int = 4
    must_be_owned: bool = False
    """Cannot be computed from pieces: blocks, modes other than "full", an adaptive scale."""

    @property
    def flops(self) -> float:
        k, long = sorted((self.rows, self.columns))
        return 4.0 * k * k * long

    @property
    def size(self) -> float:
        return float(self.rows * self.columns * self.element_bytes)

    @property
    def gram_size(self) -> float:
        """Of one triangle."""
        k = min(self.rows, self.columns)
        return k * (k + 1) / 2 * max(4, self.element_bytes)


def estimate(matrices: Sequence[Matrix], owned: Sequence[bool]) -> Estimate:
    """The costs of weights of one group of ranks, some of which go to owners."""
    parts = matrices[0].parts
    elsewhere = 1 - 1 / parts
    to_own = [matrix for matrix, own in zip(matrices, owned, strict=True) if own]
    to_share = [matrix for matrix, own in zip(matrices, owned, strict=True) if not own]
    grams = sum(matrix.gram_size for matrix in to_share if matrix.cut_along_long_side)
    wholes = sum(matrix.size for matrix in to_share if not matrix.cut_along_long_side)
    pieces = sum(matrix.size for matrix in to_own) / parts
    calls = _rounds(grams) + 2 * _rounds(wholes) + 2 * _rounds(pieces)
    flops = sum(matrix.flops for matrix in to_share) / parts
    flops += assign([matrix.flops for matrix in to_own], parts)[1]
    return Estimate((2 * grams + wholes + 2 * pieces) * elsewhere, calls, flops)


def _rounds(size: float) -> int:
    return math.ceil(size / current_routing().bucket_bytes)


def assign(costs: Sequence[float], parts: int) -> tuple[list[int], float]:
    """The rank that does each piece of work, largest first, each to the rank with the least so far; and the largest load."""
    loads = [0.0] * parts
    owners = [0] * len(costs)
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += costs[index]
    return owners, max(loads)


def choose(matrices: Sequence[Matrix], machine: Machine) -> list[bool]:
    """For each weight of one group of ranks: whether it goes to an owner.

    Owners are cheap in bytes, but some are idle when there are fewer large matrices than ranks. So the largest few are
    shared, as many as pay; the others are owned.
    """
    fixed = current_routing().own
    if fixed is not None:
        return [fixed or matrix.must_be_owned for matrix in matrices]
    shareable = [i for i, matrix in enumerate(matrices) if not matrix.must_be_owned]
    shareable.sort(key=lambda i: (-matrices[i].flops, i))
    best, best_seconds = [True] * len(matrices), math.inf
    for count in sorted({0, *(2**power for power in range(len(shareable).bit_length())), len(shareable)}):
        shared = set(shareable[:count])
        owned = [i not in shared for i in range(len(matrices))]
        seconds = estimate(matrices, owned).seconds(machine)
        if seconds < best_seconds:
            best, best_seconds = owned, seconds
    return best
