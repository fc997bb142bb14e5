r"""The penalty of weights that no rank holds whole: exact, and shared between the ranks.

With X the matrix, its short side (k) first, three routes (their costs: `_cost`):

- **reduce**, X cut across its long side: :math:`X X^T = \sum_r X_r X_r^T`, one sum of small Gram matrices over the ranks;
  then each rank multiplies its own piece, :math:`E X_r`,
- **gather**, X cut across its short side: every rank gets X and computes its own rows, :math:`E_r = X_r X^T - s I_r`, and
  :math:`E_r X`: no second exchange but the norms for the stability guard,
- **own**: pieces go to one owner each, which computes the direction as a single process would; pieces of it come back.

Weights go in rounds of a bounded size, one call for all weights of a round. A weight that several mesh dimensions cut (FSDP ×
tensor parallelism) is first gathered over the cuts that its route cannot use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bort.optim.sharded import _collective
from bort.optim.sharded import _cost
from bort.optim.kernels import _run as _cuda
from bort.optim import _stability as _guard
from bort.optim._plain_torch import Judged, Weight
from bort.optim.sharded._layout import Cut, Layout, layout_of


@dataclass(frozen=True)
class Job:
    slot: int
    weight: Any
    layout: Layout
    first: tuple[Cut, ...]
    """Cuts to gather over before anything else, the last one first."""
    main: tuple[Cut, ...]
    """The cuts that the route works on."""
    owner: int = 0

    def local(self) -> Tensor:
        """This rank's piece of the matrix, on the device where products and communication happen."""
        piece: Tensor = self.weight.to_local()
        matrix = piece.reshape(piece.shape[0], -1) if piece.numel() else piece.new_empty(self.local_shape)
        return matrix.to(self.layout.device)

    def ours(self, matrix: Tensor) -> Tensor:
        """The way back: of what `_pieces` returned, or a direction of its shape, the part that is on this rank."""
        for cut in reversed(self.first):
            matrix = matrix.narrow(0 if cut.rows else 1, cut.start, cut.size)
        return matrix

    def our_rows(self, e: Tensor) -> Tensor:
        """Of rows of E those that are this rank's, where the cuts in ``first`` are all across the short side."""
        for cut in reversed(self.first):
            e = e.narrow(0, cut.start, cut.size)
        return e

    @property
    def local_shape(self) -> tuple[int, int]:
        rows, columns = self.layout.shape
        for cut in self.layout.cuts:
            rows, columns = (cut.size, columns) if cut.rows else (rows, cut.size)
        return rows, columns


def _pieces(jobs: Sequence[Job]) -> list[Tensor]:
    """This rank's pieces, whole along the cuts in ``first``: one call for all of a round, cut by cut."""
    matrices = [job.local() for job in jobs]
    for level in range(len(jobs[0].first)):
        matrices = _collective.gather(matrices, [job.first[level] for job in jobs])
    return matrices


class Workspace:
    """Memory for the whole matrices of one round after the other: always the same, so that the kernels' plans stay good."""

    def __init__(self) -> None:
        self.size = 0
        """Elements that the largest round needs."""
        self._memory = torch.empty(0)

    def hold(self, matrices: list[Weight]) -> list[Weight]:
        """Copies of those that the kernels take; others are returned as they are."""
        held, start = [], 0
        for slot, matrix in matrices:
            if _cuda.gives_directions(matrix):
                if self._memory.device != matrix.device or not self._memory.numel():
                    self._memory = torch.empty(self.size, device=matrix.device)
                place = self._memory[start : start + matrix.numel()].view(matrix.shape)
                start += _aligned(matrix.shape)
                matrix = place.copy_(matrix)
            held.append((slot, matrix))
        return held


def _aligned(shape: Sequence[int]) -> int:
    return -(-math.prod(shape) // 64) * 64


@dataclass(frozen=True)
class Round:
    compute: Callable[[Round, dict[str, Any], Judged], Iterator[tuple[Job, Tensor, Tensor]]]
    jobs: list[Job]
    workspace: Workspace
    known: dict[Any, Any] = field(default_factory=dict)
    """Plans of the kernels, where this rank has whole matrices."""


def directions(
    rounds: Sequence[Round], group: dict[str, Any], judged: Judged
) -> Iterator[tuple[Weight, Tensor, Tensor]]:
    """(weight, our piece of its guarded direction in the piece's own shape and place, its distance)."""
    for each in rounds:
        for job, matrix, distance in each.compute(each, group, judged):
            local = job.weight.to_local()
            yield (job.slot, job.weight), matrix.reshape(local.shape).to(local.device), distance.to(local.device)


def plan(weights: Sequence[Weight], group: dict[str, Any]) -> list[Round]:
    """Which weight goes which way, in which round. Every rank makes the same plan: it depends on global shapes only."""
    whole = group["mode"] != "full" or group["scale"] == "adaptive" or group["blocks"] != 1
    kinds: dict[Any, list[tuple[Weight, Layout]]] = {}
    for slot, p in weights:
        layout = layout_of(p)  # type: ignore[arg-type]
        cuts = layout.cuts
        kinds.setdefault((layout.device, p.dtype, tuple(cut.group for cut in cuts)), []).append(((slot, p), layout))
    rounds: list[Round] = []
    workspace = Workspace()
    for (device, dtype, groups), members in kinds.items():
        if not groups:
            rounds.append(Round(_alone, [Job(slot, p, layout, (), ()) for (slot, p), layout in members], workspace))
            continue
        matrices = [
            _cost.Matrix(*layout.shape, len(layout.cuts[0].sizes), _has_long(layout), dtype.itemsize, whole)
            for _, layout in members
        ]
        machine = _cost.MACHINES.get(device.type, _cost.MACHINES["cuda"])
        owned = _cost.choose(matrices, machine)
        routes: dict[Any, list[tuple[Job, float]]] = {}
        for ((slot, p), layout), matrix, own in zip(members, matrices, owned, strict=True):
            compute, main = _route(layout, own)
            first = tuple(cut for cut in reversed(layout.cuts) if cut not in main)
            size = matrix.gram_size if compute is _reduced else matrix.size / (matrix.parts if own else 1)
            key = (compute, tuple(id(cut.group) for cut in main))
            routes.setdefault(key, []).append((Job(slot, p, layout, first, main), size))
        for (compute, _), jobs in routes.items():
            rounds.extend(Round(compute, each, workspace) for each in _rounds(jobs, shared=compute is _owned))
    for each in rounds:
        here = [job for job in each.jobs if not job.main or (each.compute is _owned and job.owner == job.main[0].place)]
        workspace.size = max(workspace.size, sum(_aligned(job.layout.shape) for job in here))
    return rounds


def _has_long(layout: Layout) -> bool:
    return any(layout.is_long(cut) for cut in layout.cuts)


def _route(layout: Layout, own: bool) -> tuple[Any, tuple[Cut, ...]]:
    if own:
        return _owned, layout.cuts[:1]
    if _has_long(layout):
        return _reduced, tuple(cut for cut in layout.cuts if layout.is_long(cut))
    return _gathered, layout.cuts[:1]


def _rounds(jobs: list[tuple[Job, float]], *, shared: bool) -> Iterator[list[Job]]:
    """Cut at ``_cost.BUCKET_BYTES``; where they have owners, these are found for each round, so that all are busy in it."""
    found: list[Job] = []
    room = 0.0
    batches = []
    for job, size in jobs:
        if not found or size > room:
            found, room = [], _cost.BUCKET_BYTES
            batches.append(found)
        found.append(job)
        room -= size
    for batch in batches:
        if shared:
            costs = [_cost.Matrix(*job.layout.shape, 1, False).flops for job in batch]
            owners, _ = _cost.assign(costs, len(batch[0].main[0].sizes))
            yield [
                Job(j.slot, j.weight, j.layout, j.first, j.main, owner) for j, owner in zip(batch, owners, strict=True)
            ]
        else:
            yield batch


def _oriented(job: Job, matrix: Tensor) -> Tensor:
    """(short, long), in float32 or wider."""
    matrix = matrix.float() if matrix.dtype in (torch.float16, torch.bfloat16) else matrix
    return matrix.mT if job.layout.tall else matrix


def _alone(each: Round, group: dict[str, Any], judged: Judged) -> Iterator[tuple[Job, Tensor, Tensor]]:
    found = _wholes(_pieces(each.jobs), each, group, judged)
    for job, move in zip(each.jobs, found, strict=True):
        assert move is not None
        yield job, *move


def _wholes(
    matrices: Sequence[Tensor | None], each: Round, group: dict[str, Any], judged: Judged
) -> list[tuple[Tensor, Tensor] | None]:
    """(direction, distance) of the matrices that this rank has."""
    here = [(slot, matrix) for slot, matrix in enumerate(matrices) if matrix is not None]
    found = _cuda.directions(each.workspace.hold(here), group, judged, each.known) if here else {}
    return [found.get(slot) for slot in range(len(matrices))]


def _reduced(each: Round, group: dict[str, Any], judged: Judged) -> Iterator[tuple[Job, Tensor, Tensor]]:
    jobs = each.jobs
    pieces = [_oriented(job, piece) for job, piece in zip(jobs, _pieces(jobs), strict=True)]
    defects = _collective.add_up([x @ x.mT for x in pieces], [cut.group for cut in jobs[0].main])
    for job, x, e in zip(jobs, pieces, defects, strict=True):
        e.diagonal().sub_(group["scale"])
        distance = torch.linalg.vector_norm(e) / e.shape[0] ** 0.5
        factor = _guard.damping(e[None], judged[0], group["scale"], judged[1])
        if factor is not None:
            e = e * factor[0].to(e.dtype)
        direction = job.our_rows(e) @ x
        yield job, direction.mT if job.layout.tall else direction, distance


def _gathered(each: Round, group: dict[str, Any], judged: Judged) -> Iterator[tuple[Job, Tensor, Tensor]]:
    jobs = each.jobs
    pieces = _pieces(jobs)
    wholes = _collective.gather(pieces, [job.main[0] for job in jobs])
    ready = []
    for job, whole, cut in zip(jobs, wholes, [job.main[0] for job in jobs], strict=True):
        x = _oriented(job, whole)
        # The rows that are ours among those of our group; what ``first`` has gathered is cut off again below.
        rows = x.narrow(0, cut.start, cut.size) @ x.mT
        rows.diagonal(cut.start).sub_(group["scale"])
        ready.append((job, x, rows))
    squares = torch.stack([rows.square().sum() for _, _, rows in ready])
    (squares,) = _collective.add_up([squares], [jobs[0].main[0].group])
    sizes = squares.sqrt().tolist()  # the guard is asked before the products, on the host: once for all weights
    for (job, x, rows), size in zip(ready, sizes, strict=True):
        a, limits = judged
        if bool(a * size > limits.step) or bool(a * group["scale"] >= limits.scale):
            e = x @ x.mT
            e.diagonal().sub_(group["scale"])
            factor = _guard.damping(e[None], a, group["scale"], limits)
            rows = rows if factor is None else rows * factor[0].to(rows.dtype)
        direction = job.our_rows(rows) @ x
        yield job, direction.mT if job.layout.tall else direction, x.new_tensor(size / x.shape[0] ** 0.5)


def _owned(each: Round, group: dict[str, Any], judged: Judged) -> Iterator[tuple[Job, Tensor, Tensor]]:
    jobs = each.jobs
    cuts, owners = [job.main[0] for job in jobs], [job.owner for job in jobs]
    pieces = _pieces(jobs)
    moves = _wholes(_collective.to_owners(pieces, cuts, owners), each, group, judged)
    width = torch.promote_types(pieces[0].dtype, torch.float32)
    back = _collective.from_owners(moves, cuts, owners, pieces, width)
    for job, (direction, distance) in zip(jobs, back, strict=True):
        yield job, job.ours(direction), distance


def whole(p: Any) -> Tensor:
    """All of a weight, in its own shape, on every rank: all have to ask for it."""
    layout = layout_of(p)
    (matrix,) = _pieces([Job(0, p, layout, tuple(reversed(layout.cuts)), ())])
    return matrix.view(p.shape)
