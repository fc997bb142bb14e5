r"""How the penalty of weights that no rank holds whole is computed: exactly, with the work shared between the ranks.

With X the matrix, its short side (k) first, there are three routes; `_cost` has what they cost:

- **reduce**, X cut along its long side: :math:`X X^T = \sum_r X_r X_r^T`, one sum of small Gram matrices over the ranks, of
  which one triangle is sent (`_triangle`); then each rank multiplies its own piece, :math:`E X_r`,
- **gather**, X cut along its short side: every rank gets X and computes its own rows, :math:`E_r = X_r X^T - s I_r`, and
  :math:`E_r X`; a second, small exchange sums the norms for the stability guard,
- **own**: pieces go to one owner each, which computes the direction as a single process would; pieces of it come back.

Each route begins with its exchange of weights or Gram matrices, which needs neither gradients nor the rate: `begin` can be
called when a step has ended, for the next one (`_overlap`).

A weight that every rank holds whole needs no exchange; **whole** is for those of them that are not where products are
computed. Weights of a round whose Gram matrices have one size are judged together: a call for each would cost the host more
than the products.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bort.optim._spec import Moves, PenaltySpec
from bort.optim._stability import Stability
from bort.optim.sharded import _collective
from bort.optim.sharded._round import Round, Route, ShardedWeight, pieces
from bort.optim.sharded._triangle import packed, unpacked

PieceMoves: TypeAlias = tuple[list[ShardedWeight], list[Tensor], Tensor]
"""Weights, this rank's pieces of their directions as matrices, and their residuals (weights,)."""

Begun: TypeAlias = Callable[[], Any]
"""Waits for an exchange, and returns what the rest of its route needs."""


def begin(round_: Round) -> Begun:
    """Begins the exchange of a round. What it returns waits for it, and is for `directions`."""
    return _BEGIN[round_.route](round_)


def directions(
    rounds: Sequence[Round], spec: PenaltySpec, stability: Stability, begun: Mapping[int, Begun] | None = None
) -> Iterator[Moves]:
    """Weights, this rank's pieces of their guarded directions in the pieces' own shapes, and their residuals. ``begun`` are
    exchanges that have been begun already, by the number of the round."""
    for number, round_ in enumerate(rounds):
        exchanged = (begun or {}).get(number) or begin(round_)
        for weights, matrices, residuals in _COMPUTE[round_.route](round_, exchanged(), spec, stability):
            own = [weight.weight.to_local() for weight in weights]
            moves = [
                (matrix if matrix.shape == piece.shape else matrix.reshape(piece.shape)).to(piece.device)
                for matrix, piece in zip(matrices, own, strict=True)
            ]
            yield [(weight.slot, weight.weight) for weight in weights], moves, residuals


def _oriented(weights: Sequence[ShardedWeight], matrices: Sequence[Tensor]) -> list[Tensor]:
    return [weight.oriented(matrix) for weight, matrix in zip(weights, matrices, strict=True)]


def _begin_reduce(round_: Round) -> Begun:
    weights = round_.weights
    xs = _oriented(weights, pieces(weights))
    grams = [packed(_products([xs[i] for i in members], [xs[i] for i in members])) for members in _sides(xs)]
    sums = _collective.add_up(grams, [cut.group for cut in weights[0].route_cuts])
    return lambda: (xs, sums())


def _reduce(round_: Round, exchanged: Any, spec: PenaltySpec, stability: Stability) -> Iterator[PieceMoves]:
    xs, sums = exchanged
    for members, total in zip(_sides(xs), sums, strict=True):
        some, k = [round_.weights[i] for i in members], len(xs[members[0]])
        e = _defects(unpacked(total, k), some, spec)
        residuals = torch.linalg.vector_norm(e, dim=(1, 2)) / k**0.5
        factors = stability.damping(e, spec.target)
        if factors is not None:
            e = e * factors.to(e.dtype)
        moves = [w.turned(w.narrowed_rows(rows) @ xs[i]) for i, w, rows in zip(members, some, e, strict=True)]
        yield some, moves, residuals


def _begin_gather(round_: Round) -> Begun:
    return _collective.gather(pieces(round_.weights), [weight.route_cuts[0] for weight in round_.weights])


def _gather(round_: Round, exchanged: Any, spec: PenaltySpec, stability: Stability) -> Iterator[PieceMoves]:
    weights = round_.weights
    cuts, xs = [weight.route_cuts[0] for weight in weights], _oriented(weights, exchanged)
    alike = _alike([(len(x), cut.sizes) for x, cut in zip(xs, cuts, strict=True)])  # the same on all ranks
    defects = []
    for members in alike:
        # The rows that this rank's group of ranks has in common; `narrowed_rows` takes this rank's out of them below.
        start, size = cuts[members[0]].start, cuts[members[0]].size
        products = _products([xs[i].narrow(0, start, size) for i in members], [xs[i] for i in members])
        defects.append(_defects(products, [weights[i] for i in members], spec, start))
    own = [rows.square().sum(dim=(1, 2)) for rows in defects]
    norms = [squares.sqrt() for squares in _collective.add_up(own, [cuts[0].group])()]
    sizes = torch.cat(norms).tolist()  # to the host, once for all weights: the guard seldom has to look further
    are_proven = iter([stability.is_proven(size, spec.target) for size in sizes])
    for members, rows_of, norms_of in zip(alike, defects, norms, strict=True):
        some, moves = [weights[i] for i in members], []
        for i, weight, rows in zip(members, some, rows_of, strict=True):
            x = xs[i]
            if not next(are_proven):
                factor = stability.damping(_defects((x @ x.mT)[None], [weight], spec), spec.target)
                rows = rows if factor is None else rows * factor[0].to(rows.dtype)
            moves.append(weight.turned(weight.narrowed_rows(rows) @ x))
        yield some, moves, norms_of / len(xs[members[0]]) ** 0.5


def _begin_own(round_: Round) -> Begun:
    assert round_.owners is not None
    return round_.owners.collect(pieces(round_.weights))


def _own(round_: Round, exchanged: Any, spec: PenaltySpec, stability: Stability) -> Iterator[PieceMoves]:
    weights, owners = round_.weights, round_.owners
    assert owners is not None
    moves = _whole_directions(exchanged, round_, spec, stability)
    dtype = torch.promote_types(weights[0].weight.dtype, torch.float32)
    returned, residuals = owners.hand_out(moves, dtype, round_.device)
    ordered = [weights[index] for index in owners.order]
    yield ordered, [weight.narrowed(piece) for weight, piece in zip(ordered, returned, strict=True)], residuals


def _begin_whole(round_: Round) -> Begun:
    return lambda: dict(enumerate(pieces(round_.weights)))


def _whole(round_: Round, exchanged: Any, spec: PenaltySpec, stability: Stability) -> Iterator[PieceMoves]:
    moves = _whole_directions(exchanged, round_, spec, stability)
    ordered = [moves[position] for position in range(len(round_.weights))]
    yield round_.weights, [direction for direction, _ in ordered], torch.stack([residual for _, residual in ordered])


def _whole_directions(
    matrices: dict[int, Tensor], round_: Round, spec: PenaltySpec, stability: Stability
) -> dict[int, tuple[Tensor, Tensor]]:
    """{position: (direction, residual)} of matrices, which are known by their positions in the round."""
    if not matrices:
        return {}
    held = round_.workspace.hold(list(matrices.items()), round_.kernels)
    if spec.scales is not None:
        spec = replace(spec, scales=spec.scales_of([weight.slot for weight in round_.weights]))
    return round_.kernels.directions(held, spec, stability)


def _alike(keys: Sequence[Hashable]) -> list[list[int]]:
    """Positions that have the same key."""
    alike: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        alike.setdefault(key, []).append(position)
    return list(alike.values())


def _sides(xs: Sequence[Tensor]) -> list[list[int]]:
    return _alike([len(x) for x in xs])


def _products(rows: Sequence[Tensor], xs: Sequence[Tensor]) -> Tensor:
    """rows·xᵀ of each pair, of one size, (pairs, rows, k)."""
    products = xs[0].new_empty(len(xs), len(rows[0]), len(xs[0]))
    for some, x, product in zip(rows, xs, products, strict=True):
        torch.mm(some, x.mT, out=product)
    return products


def _defects(grams: Tensor, weights: Sequence[ShardedWeight], spec: PenaltySpec, first: int = 0) -> Tensor:
    """G − s·I, in units of s where it is each weight's own; ``first`` is the row of G that the given ones begin with."""
    diagonals = grams.diagonal(first, 1, 2)
    scales = spec.scales_of([weight.slot for weight in weights])
    if scales is None:
        diagonals.sub_(spec.target)
        return grams
    scales = scales.to(grams)  # (weights, 1): a weight with blocks is owned
    diagonals.sub_(scales)
    return grams / scales[..., None]


_BEGIN: dict[Route, Callable[[Round], Begun]] = {
    "reduce": _begin_reduce,
    "gather": _begin_gather,
    "own": _begin_own,
    "whole": _begin_whole,
}
_COMPUTE: dict[Route, Callable[[Round, Any, PenaltySpec, Stability], Iterator[PieceMoves]]] = {
    "reduce": _reduce,
    "gather": _gather,
    "own": _own,
    "whole": _whole,
}
