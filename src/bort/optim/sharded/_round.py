"""A sharded weight, and a round: weights that are computed by one route, with one call for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from bort.optim._spec import Weight
from bort.optim.kernels import Kernels
from bort.optim.sharded import _collective
from bort.optim.sharded._layout import Cut, Layout, is_dtensor, layout_of
from bort.optim.sharded._owners import Owners

Route: TypeAlias = Literal["reduce", "gather", "own", "whole"]


@dataclass(frozen=True)
class ShardedWeight:
    """A DTensor, and how its matrix is put together from pieces."""

    slot: int
    weight: Any
    layout: Layout
    gather_first: tuple[Cut, ...]
    """Cuts to gather over before the route begins, the last cut first."""
    route_cuts: tuple[Cut, ...]
    """The cuts that the route works on."""

    def local(self) -> Tensor:
        """This rank's piece of the matrix, on the device where products and communication happen."""
        piece: Tensor = self.weight.to_local()
        matrix = piece.reshape(piece.shape[0], -1) if piece.numel() else piece.new_empty(self._local_shape)
        return matrix.to(self.layout.device)

    def narrowed(self, matrix: Tensor) -> Tensor:
        """The part that is on this rank of what `pieces` has returned, or of a direction of that shape."""
        for cut in reversed(self.gather_first):
            matrix = matrix.narrow(0 if cut.rows else 1, cut.start, cut.size)
        return matrix

    def narrowed_rows(self, e: Tensor) -> Tensor:
        """Of rows of E those that are this rank's, where all cuts in ``gather_first`` divide the short side."""
        for cut in reversed(self.gather_first):
            e = e.narrow(0, cut.start, cut.size)
        return e

    def oriented(self, matrix: Tensor) -> Tensor:
        """X (short, long), in float32 or wider."""
        matrix = matrix.float() if matrix.dtype in (torch.float16, torch.bfloat16) else matrix
        return self.turned(matrix)

    def turned(self, matrix: Tensor) -> Tensor:
        """From the orientation of the weight to X's, or back."""
        return matrix.mT if self.layout.tall else matrix

    @property
    def route_shape(self) -> tuple[int, int]:
        """Of what `pieces` returns."""
        return _cut_by(self.route_cuts, self.layout.shape)

    @property
    def _local_shape(self) -> tuple[int, int]:
        return _cut_by(self.layout.cuts, self.layout.shape)


def _cut_by(cuts: Sequence[Cut], shape: tuple[int, int]) -> tuple[int, int]:
    rows, columns = shape
    for cut in cuts:
        rows, columns = (cut.size, columns) if cut.rows else (rows, cut.size)
    return rows, columns


def pieces(weights: Sequence[ShardedWeight]) -> list[Tensor]:
    """This rank's pieces, gathered over the cuts in ``gather_first``: one call for all weights, cut by cut."""
    matrices = [weight.local() for weight in weights]
    for level in range(len(weights[0].gather_first)):
        matrices = _collective.gather(matrices, [weight.gather_first[level] for weight in weights])()
    return matrices


def whole(p: Tensor) -> Tensor:
    """The weight with all its rows and columns, in its own shape. If it is a DTensor, all ranks have to call this."""
    if not is_dtensor(p):
        return p
    layout = layout_of(p)  # type: ignore[arg-type]
    (matrix,) = pieces([ShardedWeight(0, p, layout, tuple(reversed(layout.cuts)), ())])
    return matrix.view(p.shape)


class Workspace:
    """Memory for the whole matrices of one round after the other. It stays the same from step to step, so that the tables
    of the kernels, which hold addresses, stay valid."""

    def __init__(self) -> None:
        self._elements = 0
        self._memory = torch.empty(0)

    def reserve(self, shapes: Sequence[tuple[int, int]]) -> None:
        """Room for a round that has whole matrices of these shapes on this rank."""
        self._elements = max(self._elements, sum(map(_aligned, shapes)))

    def hold(self, matrices: list[Weight], kernels: Kernels) -> list[Weight]:
        """Copies of those that the kernels take; the others are returned as they are."""
        taken = [matrix for _, matrix in matrices if kernels.gives_direction(matrix)]
        if not taken:
            return matrices
        if self._memory.device != taken[0].device or not self._memory.numel():
            self._memory = torch.empty(self._elements, device=taken[0].device)
        sizes = [_aligned(matrix.shape) for matrix in taken]
        blocks = torch.split(self._memory[: sum(sizes)], sizes)
        rooms = [block[: matrix.numel()].view(matrix.shape) for block, matrix in zip(blocks, taken, strict=True)]
        torch._foreach_copy_(rooms, taken)
        copies = iter(rooms)
        return [(slot, next(copies) if kernels.gives_direction(matrix) else matrix) for slot, matrix in matrices]


def _aligned(shape: Sequence[int]) -> int:
    return -(-math.prod(shape) // 64) * 64


@dataclass(frozen=True)
class Round:
    route: Route
    weights: list[ShardedWeight]
    workspace: Workspace
    owners: Owners | None = None
    """On the route "own"."""
    exchanged_bytes: float = 0.0
    """What is received in the exchange that the route begins with."""
    kernels: Kernels = field(default_factory=Kernels)
    """For whole matrices on this rank."""

    @property
    def device(self) -> torch.device:
        return self.weights[0].layout.device

    def whole_here(self) -> list[ShardedWeight]:
        """The weights whose whole matrix this rank gets."""
        if self.owners is not None:
            return [self.weights[index] for index in self.owners.mine]
        return self.weights if self.route == "whole" else []
