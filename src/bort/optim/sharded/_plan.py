"""Which sharded weight goes which route, in which round.

Weights go in rounds of a bounded size, with one call for all weights of a round. A weight that several mesh dimensions cut
(FSDP × tensor parallelism) is first gathered over the cuts that its route cannot use. Every rank makes the same plan: it
depends on global shapes only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bort.optim._spec import PenaltySpec, Weight
from bort.optim.sharded import _cost
from bort.optim.sharded._layout import Cut, Layout, layout_of, local
from bort.optim.sharded._owners import Owners
from bort.optim.sharded._round import Round, Route, ShardedWeight, Workspace
from bort.optim.sharded._routing import current_routing


@dataclass(frozen=True)
class Plan:
    whole: list[Weight]
    """Weights that this rank holds whole, where they are computed: no different from those that are no DTensors."""
    rounds: list[Round]
    """The others."""


class ShardedRounds:
    """The plan of one param group, made anew when its weights, their placements or the settings change."""

    def __init__(self) -> None:
        self._key: Any = None
        self._plan = Plan([], [])

    def of(self, weights: Sequence[Weight], spec: PenaltySpec) -> Plan:
        placements = [(id(p), p.placements) for _, p in weights]  # type: ignore[attr-defined]
        key = (placements, spec.mode, spec.scale, spec.blocks, spec.schedule_free)
        if self._key != key:
            self._key, self._plan = key, make_plan(weights, spec)
        return self._plan

    @property
    def rounds(self) -> list[Round]:
        """Of the last step."""
        return self._plan.rounds


def make_plan(weights: Sequence[Weight], spec: PenaltySpec) -> Plan:
    whole: list[Weight] = []
    alike: dict[Any, list[tuple[Weight, Layout]]] = {}
    for slot, p in weights:
        layout = layout_of(p)  # type: ignore[arg-type]
        # A schedule-free optimizer has a second copy of the weight, which is found by the DTensor.
        if not layout.cuts and local(p).device == layout.device and not spec.schedule_free:
            whole.append((slot, p))
            continue
        key = (layout.device, p.dtype, tuple(cut.group for cut in layout.cuts))
        alike.setdefault(key, []).append(((slot, p), layout))
    workspace = Workspace()
    rounds: list[Round] = []
    for (_, _, groups), members in alike.items():
        if groups:
            rounds.extend(_cut_rounds(members, spec, workspace))
        else:
            replicas = [ShardedWeight(slot, p, layout, (), ()) for (slot, p), layout in members]
            rounds.append(Round("whole", replicas, workspace))
    for round_ in rounds:
        workspace.reserve([weight.layout.shape for weight in round_.whole_here()])
    return Plan(whole, rounds)


def _cut_rounds(members: list[tuple[Weight, Layout]], spec: PenaltySpec, workspace: Workspace) -> Iterator[Round]:
    """The rounds of weights that are cut over the same groups of ranks, and have one device and dtype."""
    (_, example), first_layout = members[0]
    matrices = [
        _cost.Matrix(
            *layout.shape,
            parts=len(layout.cuts[0].sizes),
            cut_along_long_side=_has_long_cut(layout),
            element_bytes=example.dtype.itemsize,
            must_be_owned=spec.needs_whole_matrix,
        )
        for _, layout in members
    ]
    machine = _cost.MACHINES.get(first_layout.device.type, _cost.MACHINES["cuda"])
    routes: dict[tuple[Route, tuple[int, ...]], list[tuple[ShardedWeight, float]]] = {}
    for ((slot, p), layout), matrix, own in zip(members, matrices, _cost.choose(matrices, machine), strict=True):
        route, cuts = _route(layout, own)
        others = tuple(cut for cut in reversed(layout.cuts) if cut not in cuts)
        size = matrix.gram_size if route == "reduce" else matrix.size / (matrix.parts if own else 1)
        weight = ShardedWeight(slot, p, layout, gather_first=others, route_cuts=cuts)
        routes.setdefault((route, tuple(id(cut.group) for cut in cuts)), []).append((weight, size))
    for (route, _), sized in routes.items():
        for bucket in _buckets(sized):
            weights, size = [weight for weight, _ in bucket], sum(size for _, size in bucket)
            yield Round(route, weights, workspace, _owners(weights) if route == "own" else None, size)


def _has_long_cut(layout: Layout) -> bool:
    return any(layout.is_long(cut) for cut in layout.cuts)


def _route(layout: Layout, own: bool) -> tuple[Route, tuple[Cut, ...]]:
    """The route, and the cuts that it works on."""
    if own:
        return "own", layout.cuts[:1]
    if _has_long_cut(layout):
        return "reduce", tuple(cut for cut in layout.cuts if layout.is_long(cut))
    return "gather", layout.cuts[:1]


def _buckets(sized: list[tuple[ShardedWeight, float]]) -> list[list[tuple[ShardedWeight, float]]]:
    """Weights in their order, as many together as move no more than a bucket's bytes."""
    buckets: list[list[tuple[ShardedWeight, float]]] = []
    room = 0.0
    for weight, size in sized:
        if not buckets or size > room:
            buckets.append([])
            room = current_routing().bucket_bytes
        buckets[-1].append((weight, size))
        room -= size
    return buckets


def _owners(weights: list[ShardedWeight]) -> Owners:
    """Found for each round by itself, so that all ranks have work in it."""
    cuts = [weight.route_cuts[0] for weight in weights]
    costs = [_cost.Matrix(*weight.layout.shape, 1, False).flops for weight in weights]
    owners, _ = _cost.assign(costs, len(cuts[0].sizes))
    return Owners([weight.route_shape for weight in weights], cuts, owners)
