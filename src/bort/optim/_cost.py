r"""What a way of computing a sharded penalty costs, and which one is the cheapest: bytes, calls and FLOPs of one rank.

For a matrix of m × n = short side k times long side K, cut in R equal parts, b bytes an element:

========  ======================  =====  ==================  ==========================================================
route     bytes sent and received calls  FLOPs of a rank     works for
========  ======================  =====  ==================  ==========================================================
reduce    2·b·k²·(1 − 1/R)        1      4·k²K/R             cuts across the long side: Grams are summed
gather    b·kK·(1 − 1/R)          2      4·k²K/R             cuts across the short side: each rank its rows of E·X
own       2·b·kK/R·(1 − 1/R)      2      4·k²K on the owner  all: whole matrices go to owners, directions come back
========  ======================  =====  ==================  ==========================================================

Calls are those of a bucket of many weights, not of each weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """What the estimate knows of the hardware. The defaults only have to be right to a factor of a few."""

    flops: float
    """Floating point operations a second of one rank."""
    bandwidth: float
    """Bytes a second that a rank can send and receive in a collective."""
    latency: float
    """Seconds of a small collective."""

    def seconds(self, *, size: float = 0.0, calls: float = 0.0, flops: float = 0.0) -> float:
        return size / self.bandwidth + calls * self.latency + flops / self.flops


MACHINES = {"cuda": Machine(2e14, 1e11, 3e-5), "cpu": Machine(3e10, 5e8, 5e-4)}


@dataclass(frozen=True)
class Matrix:
    """One weight, as far as its costs go."""

    rows: int
    columns: int
    parts: int
    """In how many parts it is cut."""
    long: bool
    """Whether the cuts are across the side that its smaller Gram matrix sums over."""
    width: int = 4
    """Bytes of an element."""
    special: bool = False
    """Must be whole to be computed: blocks, modes other than "full", an adaptive scale."""

    @property
    def flops(self) -> float:
        k, long = sorted((self.rows, self.columns))
        return 4.0 * k * k * long

    @property
    def size(self) -> float:
        return float(self.rows * self.columns * self.width)

    def shared(self, machine: Machine) -> float:
        """Seconds by the route that all ranks share, whichever the cuts allow, without its calls."""
        k = min(self.rows, self.columns)
        moved = 2.0 * k * k * max(4, self.width) if self.long else self.size
        return machine.seconds(size=moved * (1 - 1 / self.parts), flops=self.flops / self.parts)

    def owned(self, machine: Machine) -> float:
        """Seconds of moving the matrix to its owner and back, without calls and the owner's work."""
        return machine.seconds(size=2 * self.size / self.parts * (1 - 1 / self.parts))


def assign(costs: Sequence[float], parts: int) -> tuple[list[int], float]:
    """Who does which piece of work, the largest first, each to whom has least; and what the busiest one has."""
    loads = [0.0] * parts
    owners = [0] * len(costs)
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += costs[index]
    return owners, max(loads)


def choose(matrices: Sequence[Matrix], machine: Machine) -> list[bool]:
    """For each weight of one group of ranks: whether it goes to an owner.

    Owners are cheap in bytes and idle when there are fewer large matrices than ranks. So: the largest few are shared, as
    many as pay; the others owned.
    """
    parts = matrices[0].parts
    free = sorted((i for i, matrix in enumerate(matrices) if not matrix.special), key=lambda i: (-matrices[i].flops, i))
    special = [i for i, matrix in enumerate(matrices) if matrix.special]
    best, best_seconds = [True] * len(matrices), float("inf")
    for count in sorted({0, *(2**power for power in range(len(free).bit_length())), len(free)}):
        shared, owned = free[:count], free[count:] + special
        kinds = {matrices[i].long for i in shared}
        calls = sum(1 if long else 2 for long in kinds) + (2 if owned else 0)
        seconds = machine.seconds(calls=calls, flops=assign([matrices[i].flops for i in owned], parts)[1])
        seconds += sum(matrices[i].shared(machine) for i in shared) + sum(matrices[i].owned(machine) for i in owned)
        if seconds < best_seconds:
            best_seconds = seconds
            best = [i in set(owned) for i in range(len(matrices))]
    return best
