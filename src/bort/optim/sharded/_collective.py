"""Collectives for many matrices in one call: sums, gathers, and the way to owners and back.

All ranks of a group pass lists of the same matrices, each rank its own pieces of them, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bort.optim.sharded._layout import Cut


def add_up(tensors: Sequence[Tensor], groups: Sequence[Any]) -> list[Tensor]:
    """The sums of each tensor over the ranks of the groups, one group after the other."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    for group in groups:
        dist.all_reduce(flat, group=group)
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def gather(pieces: Sequence[Tensor], cuts: Sequence[Cut]) -> list[Tensor]:
    """Whole matrices on every rank, out of pieces along cuts that are all over one group.

    A piece is padded to the size of the largest: all_gather_into_tensor takes the same number of elements from each rank.
    """
    group, ranks = cuts[0].group, _ranks(cuts)
    lengths = [max(cut.sizes) * (p.shape[1] if cut.rows else p.shape[0]) for p, cut in zip(pieces, cuts, strict=True)]
    sent = pieces[0].new_zeros(sum(lengths))
    for room, piece in zip(torch.split(sent, lengths), pieces, strict=True):
        room[: piece.numel()] = piece.reshape(-1)
    received = sent.new_empty(ranks * len(sent))
    dist.all_gather_into_tensor(received, sent, group=group)
    by_matrix = torch.split(received.view(ranks, -1), lengths, dim=1)
    return [
        _joined([parts[rank] for rank in range(ranks)], piece, cut)
        for parts, piece, cut in zip(by_matrix, pieces, cuts, strict=True)
    ]


def to_owners(pieces: Sequence[Tensor], cuts: Sequence[Cut], owners: Sequence[int]) -> list[Tensor | None]:
    """Whole matrices, each on the one rank of the group that owns it; None on the others."""
    place = cuts[0].place
    received = _exchange(
        [[piece for piece, owner in zip(pieces, owners, strict=True) if owner == rank] for rank in range(_ranks(cuts))],
        [
            [_size(piece, cut, rank) for piece, cut, owner in zip(pieces, cuts, owners, strict=True) if owner == place]
            for rank in range(_ranks(cuts))
        ],
        cuts[0].group,
    )
    wholes: list[Tensor | None] = [None] * len(pieces)
    owned = [index for index, owner in enumerate(owners) if owner == place]
    for number, index in enumerate(owned):
        wholes[index] = _joined([parts[number] for parts in received], pieces[index], cuts[index])
    return wholes


def from_owners(
    wholes: Sequence[tuple[Tensor, Tensor] | None],
    cuts: Sequence[Cut],
    owners: Sequence[int],
    like: Sequence[Tensor],
    dtype: torch.dtype,
) -> list[tuple[Tensor, Tensor]]:
    """The way back: (matrix, number) on each owner becomes (this rank's piece of the matrix, the number) on every rank.

    ``like`` are this rank's pieces, for their shapes; ``dtype`` is that of the matrices that come back.
    """
    place = cuts[0].place
    sent: list[list[Tensor]] = [[] for _ in range(_ranks(cuts))]
    for whole, cut in zip(wholes, cuts, strict=True):
        if whole is not None:
            matrix, number = whole
            for rank, piece in enumerate(torch.split(matrix, list(cut.sizes), dim=0 if cut.rows else 1)):
                sent[rank].append(torch.cat([piece.reshape(-1), number.reshape(1).to(piece.dtype)]))
    received = _exchange(
        sent,
        [
            [_size(p, cut, place) + 1 for p, cut, owner in zip(like, cuts, owners, strict=True) if owner == rank]
            for rank in range(_ranks(cuts))
        ],
        cuts[0].group,
        like[0].new_empty(0, dtype=dtype),
    )
    by_owner = [iter(parts) for parts in received]
    pieces = []
    for piece, owner in zip(like, owners, strict=True):
        part = next(by_owner[owner])
        pieces.append((part[:-1].view(piece.shape), part[-1]))
    return pieces


def _ranks(cuts: Sequence[Cut]) -> int:
    return len(cuts[0].sizes)


def _size(piece: Tensor, cut: Cut, rank: int) -> int:
    """Elements of another rank's piece of the matrix that ``piece`` belongs to."""
    return cut.sizes[rank] * (piece.shape[1] if cut.rows else piece.shape[0])


def _joined(parts: list[Tensor], piece: Tensor, cut: Cut) -> Tensor:
    """A matrix, from the flat and perhaps padded pieces of all ranks; ``piece`` is this rank's."""
    rows, columns = piece.shape
    if cut.rows:
        return torch.cat([p[: s * columns].view(s, columns) for p, s in zip(parts, cut.sizes, strict=True)])
    return torch.cat([p[: s * rows].view(rows, s) for p, s in zip(parts, cut.sizes, strict=True)], dim=1)


def _exchange(
    sent: list[list[Tensor]], expected: list[list[int]], group: Any, like: Tensor | None = None
) -> list[list[Tensor]]:
    """sent[r] goes to rank r; from each rank come tensors of the expected sizes, flat.

    ``like`` gives dtype and device where this rank may have nothing to send.
    """
    out = [[tensor.reshape(-1) for tensor in tensors] for tensors in sent]
    example = next((tensor for tensors in out for tensor in tensors), like)
    assert example is not None
    buffer = torch.cat([tensor for tensors in out for tensor in tensors] or [example.new_empty(0)])
    received = buffer.new_empty(sum(map(sum, expected)))
    dist.all_to_all_single(
        received,
        buffer,
        output_split_sizes=[sum(sizes) for sizes in expected],
        input_split_sizes=[sum(tensor.numel() for tensor in tensors) for tensors in out],
        group=group,
    )
    by_rank = torch.split(received, [sum(sizes) for sizes in expected])
    return [list(torch.split(part, sizes)) for part, sizes in zip(by_rank, expected, strict=True)]
