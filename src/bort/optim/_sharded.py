r"""The penalty of weights that no rank holds whole: exact, and shared between the ranks.

With X the matrix, its short side (k) first, three routes (their costs: `_cost`):

- **reduce**, X cut across its long side: :math:`X X^T = \sum_r X_r X_r^T`, one sum of small Gram matrices over the ranks;
  then each rank multiplies its own piece, :math:`E X_r`,
- **gather**, X cut across its short side: every rank gets X and computes its own rows, :math:`E_r = X_r X^T - s I_r`, and
  :math:`E_r X`: no second exchange but the norms for the stability guard,
- **own**: pieces go to one owner each, which computes the direction as a single process would; pieces of it come back.

Weights go in rounds of at most ``BUCKET_BYTES``, one call for all weights of a round. A weight that several mesh dimensions
cut (FSDP × tensor parallelism) is first gathered over the cuts that its route cannot use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bort.optim import _collective, _cost, _dense, _guard
from bort.optim._dense import Judged, Weight
from bort.optim._layout import Cut, Layout, layout_of

BUCKET_BYTES = 64 * 2**20


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

    def piece(self) -> Tensor:
        """Our part of the matrix, whole along the cuts in ``first``."""
        local: Tensor = self.weight.to_local()
        matrix = local.reshape(local.shape[0], -1) if local.numel() else local.new_empty(self.local_shape)
        matrix = matrix.to(self.layout.device)
        for cut in self.first:
            matrix = _collective.gather([matrix], [cut])[0]
        return matrix

    def ours(self, matrix: Tensor) -> Tensor:
        """The way back: of what ``piece`` returned, or a direction of its shape, the part that is on this rank."""
        for cut in reversed(self.first):
            matrix = matrix.narrow(0 if cut.rows else 1, cut.start, cut.size)
        return matrix

    @property
    def local_shape(self) -> tuple[int, int]:
        rows, columns = self.layout.shape
        for cut in self.layout.cuts:
            rows, columns = (cut.size, columns) if cut.rows else (rows, cut.size)
        return rows, columns


@dataclass(frozen=True)
class Round:
    compute: Callable[[list[Job], dict[str, Any], Judged], Iterator[tuple[Job, Tensor, Tensor]]]
    jobs: list[Job]


def directions(
    rounds: Sequence[Round], group: dict[str, Any], judged: Judged
) -> Iterator[tuple[Weight, Tensor, Tensor]]:
    """(weight, our piece of its guarded direction in the piece's own shape and place, its distance)."""
    for each in rounds:
        for job, matrix, distance in each.compute(each.jobs, group, judged):
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
    for (device, dtype, groups), members in kinds.items():
        if not groups:
            rounds.append(Round(_alone, [Job(slot, p, layout, (), ()) for (slot, p), layout in members]))
            continue
        matrices = [
            _cost.Matrix(*layout.shape, len(layout.cuts[0].sizes), _has_long(layout), dtype.itemsize, whole)
            for _, layout in members
        ]
        machine = _cost.MACHINES.get(device.type, _cost.MACHINES["cuda"])
        owned = _cost.choose(matrices, machine)
        routes: dict[Any, list[tuple[Job, int]]] = {}
        for ((slot, p), layout), matrix, own in zip(members, matrices, owned, strict=True):
            compute, main = _route(layout, own)
            first = tuple(cut for cut in reversed(layout.cuts) if cut not in main)
            size = 4 * min(layout.shape) ** 2 if compute is _reduced else int(matrix.size)
            size = size // matrix.parts if own else size
            key = (compute, tuple(id(cut.group) for cut in main))
            routes.setdefault(key, []).append((Job(slot, p, layout, first, main), size))
        for (compute, _), jobs in routes.items():
            rounds.extend(Round(compute, each) for each in _rounds(jobs, shared=compute is _owned))
    return rounds


def _has_long(layout: Layout) -> bool:
    return any(layout.is_long(cut) for cut in layout.cuts)


def _route(layout: Layout, own: bool) -> tuple[Any, tuple[Cut, ...]]:
    if own:
        return _owned, layout.cuts[:1]
    if _has_long(layout):
        return _reduced, tuple(cut for cut in layout.cuts if layout.is_long(cut))
    return _gathered, layout.cuts[:1]


def _rounds(jobs: list[tuple[Job, int]], *, shared: bool) -> Iterator[list[Job]]:
    """Cut at ``BUCKET_BYTES``; where they have owners, these are found for each round, so that all are busy in it."""
    found: list[Job] = []
    room = 0
    batches = []
    for job, size in jobs:
        if not found or size > room:
            found, room = [], BUCKET_BYTES
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


def _alone(jobs: list[Job], group: dict[str, Any], judged: Judged) -> Iterator[tuple[Job, Tensor, Tensor]]:
    for job in jobs:
        moves, distances = _dense.direction(job.piece()[None], group, judged)
        yield job, moves[0], distances[0]


def _reduced(jobs: list[Job], group: dict[str, Any], judged: Judged) -> Iterator[tuple[Job, Tensor, Tensor]]:
    pieces = [_oriented(job, job.piece()) for job in jobs]
    defects = _collective.add_up([x @ x.mT for x in pieces], [cut.group for cut in jobs[0].main])
    for job, x, e in zip(jobs, pieces, defects, strict=True):
        e.diagonal().sub_(group["scale"])
        distance = torch.linalg.vector_norm(e) / e.shape[0] ** 0.5
        factor = _guard.damping(e[None], judged[0], group["scale"], judged[1])
        if factor is not None:
            e = e * factor[0].to(e.dtype)
        # Gathered cuts are across the short side: only our rows of E, then.
        rows = e
        for cut in reversed(job.first):
            rows = rows.narrow(0, cut.start, cut.size)
        direction = rows @ x
        yield job, direction.mT if job.layout.tall else direction, distance


def _gathered(jobs: list[Job], group: dict[str, Any], judged: Judged) -> Iterator[tuple[Job, Tensor, Tensor]]:
    pieces = [job.piece() for job in jobs]
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
        for cut in reversed(job.first):
            rows = rows.narrow(0, cut.start, cut.size)
        direction = rows @ x
        yield job, direction.mT if job.layout.tall else direction, x.new_tensor(size / x.shape[0] ** 0.5)


def _owned(jobs: list[Job], group: dict[str, Any], judged: Judged) -> Iterator[tuple[Job, Tensor, Tensor]]:
    cuts, owners = [job.main[0] for job in jobs], [job.owner for job in jobs]
    pieces = [job.piece() for job in jobs]
    moves: list[tuple[Tensor, Tensor] | None] = []
    for whole in _collective.to_owners(pieces, cuts, owners):
        if whole is None:
            moves.append(None)
        else:
            found, distances = _dense.direction(whole[None], group, judged)
            moves.append((found[0], distances[0]))
    width = torch.promote_types(pieces[0].dtype, torch.float32)
    back = _collective.from_owners(moves, cuts, owners, pieces, width)
    for job, (direction, distance) in zip(jobs, back, strict=True):
        yield job, job.ours(direction), distance
