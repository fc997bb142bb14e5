r"""How the penalty of weights that no rank holds whole is computed: exactly, with the work shared between the ranks.

With X the matrix, its short side (k) first, there are three routes; `_cost` has what they cost:

- **reduce**, X cut along its long side: :math:`X X^T = \sum_r X_r X_r^T`, one sum of small Gram matrices over the ranks;
  then each rank multiplies its own piece, :math:`E X_r`,
- **gather**, X cut along its short side: every rank gets X and computes its own rows, :math:`E_r = X_r X^T - s I_r`, and
  :math:`E_r X`; a second, small exchange sums the norms for the stability guard,
- **own**: pieces go to one owner each, which computes the direction as a single process would; pieces of it come back.

A weight that every rank holds whole (**replicated**) needs no exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from bort.optim._spec import Move, PenaltySpec
from bort.optim._stability import Stability
from bort.optim.sharded import _collective
from bort.optim.sharded._round import Round, Route, ShardedWeight, pieces

PieceMove: TypeAlias = tuple[ShardedWeight, Tensor, Tensor]
"""A weight, this rank's piece of its direction as a matrix, and its residual."""


def directions(rounds: Sequence[Round], spec: PenaltySpec, stability: Stability) -> Iterator[Move]:
    """Each weight, this rank's piece of its guarded direction in the piece's own shape, and its residual."""
    for round_ in rounds:
        for weight, matrix, residual in _COMPUTE[round_.route](round_, spec, stability):
            piece = weight.weight.to_local()
            moved = matrix.reshape(piece.shape).to(piece.device)
            yield (weight.slot, weight.weight), moved, residual.to(piece.device)


def _reduce(round_: Round, spec: PenaltySpec, stability: Stability) -> Iterator[PieceMove]:
    weights = round_.weights
    xs = [weight.oriented(piece) for weight, piece in zip(weights, pieces(weights), strict=True)]
    grams = _collective.add_up([x @ x.mT for x in xs], [cut.group for cut in weights[0].route_cuts])
    for weight, x, gram in zip(weights, xs, grams, strict=True):
        e = _defect(gram, weight, spec)
        residual = torch.linalg.vector_norm(e) / e.shape[0] ** 0.5
        factor = stability.damping(e[None], spec.target)
        if factor is not None:
            e = e * factor[0].to(e.dtype)
        yield weight, weight.turned(weight.narrowed_rows(e) @ x), residual


def _gather(round_: Round, spec: PenaltySpec, stability: Stability) -> Iterator[PieceMove]:
    weights = round_.weights
    cuts = [weight.route_cuts[0] for weight in weights]
    xs, defects = [], []
    for weight, matrix, cut in zip(weights, _collective.gather(pieces(weights), cuts), cuts, strict=True):
        x = weight.oriented(matrix)
        # The rows that this rank's group of ranks has in common; `narrowed_rows` takes this rank's out of them below.
        xs.append(x)
        defects.append(_defect(x.narrow(0, cut.start, cut.size) @ x.mT, weight, spec, cut.start))
    (squares,) = _collective.add_up([torch.stack([rows.square().sum() for rows in defects])], [cuts[0].group])
    sizes = squares.sqrt().tolist()  # to the host, once for all weights: the guard seldom has to look further
    for weight, x, rows, size in zip(weights, xs, defects, sizes, strict=True):
        if not stability.is_proven(size, spec.target):
            factor = stability.damping(_defect(x @ x.mT, weight, spec)[None], spec.target)
            rows = rows if factor is None else rows * factor[0].to(rows.dtype)
        direction = weight.turned(weight.narrowed_rows(rows) @ x)
        yield weight, direction, x.new_tensor(size / x.shape[0] ** 0.5)


def _own(round_: Round, spec: PenaltySpec, stability: Stability) -> Iterator[PieceMove]:
    weights = round_.weights
    cuts, owners = [weight.route_cuts[0] for weight in weights], [weight.owner for weight in weights]
    own_pieces = pieces(weights)
    wholes = _collective.to_owners(own_pieces, cuts, owners)
    moves = _whole_directions(wholes, round_, spec, stability)
    dtype = torch.promote_types(own_pieces[0].dtype, torch.float32)
    returned = _collective.from_owners(moves, cuts, owners, own_pieces, dtype)
    for weight, (direction, residual) in zip(weights, returned, strict=True):
        yield weight, weight.narrowed(direction), residual


def _replicated(round_: Round, spec: PenaltySpec, stability: Stability) -> Iterator[PieceMove]:
    moves = _whole_directions(pieces(round_.weights), round_, spec, stability)
    for weight, move in zip(round_.weights, moves, strict=True):
        assert move is not None
        yield weight, *move


def _whole_directions(
    matrices: Sequence[Tensor | None], round_: Round, spec: PenaltySpec, stability: Stability
) -> list[tuple[Tensor, Tensor] | None]:
    """(direction, residual) of the matrices that this rank has; None for the others."""
    here = [(position, matrix) for position, matrix in enumerate(matrices) if matrix is not None]
    held = round_.workspace.hold(here, round_.kernels)
    if spec.scales is not None:  # here a weight is known by its position in the round
        spec = replace(spec, scales=spec.scales_of([weight.slot for weight in round_.weights]))
    moves = round_.kernels.directions(held, spec, stability) if held else {}
    return [moves.get(position) for position in range(len(matrices))]


def _defect(gram: Tensor, weight: ShardedWeight, spec: PenaltySpec, first: int = 0) -> Tensor:
    """G − s·I, in units of s if it is the weight's own; ``first`` is the row of G that the given ones begin with."""
    s = spec.target if spec.scales is None else spec.scales[weight.slot].to(gram)
    gram.diagonal(first).sub_(s)
    return gram if spec.scales is None else gram / s


_COMPUTE: dict[Route, Callable[[Round, PenaltySpec, Stability], Iterator[PieceMove]]] = {
    "reduce": _reduce,
    "gather": _gather,
    "own": _own,
    "replicated": _replicated,
}
