"""The way of a round's matrices to their owners and back, two calls for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from bort.optim.sharded._collective import joined
from bort.optim.sharded._layout import Cut


class Owners:
    """Who owns which matrix, and what goes where: all sizes, computed once.

    Args:
        shapes: of this rank's pieces.
        cuts: of each matrix, all over one group of ranks.
        owners: the rank of the group that gets each matrix.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], cuts: Sequence[Cut], owners: Sequence[int]) -> None:
        place, ranks = cuts[0].place, range(len(cuts[0].sizes))
        self._shapes, self._cuts = shapes, cuts
        self._across = [cut.across(shape) for cut, shape in zip(cuts, shapes, strict=True)]
        of_owner = [[index for index, owner in enumerate(owners) if owner == rank] for rank in ranks]
        self.mine = of_owner[place]
        """Positions of the matrices that this rank owns."""
        self.order = [index for indices in of_owner for index in indices]
        """Positions by owner: the order in which matrices lie in the buffers, and come back."""
        self._own_sizes = [[self._size(index, rank) for index in self.mine] for rank in ranks]
        """Elements of this rank's matrices, by the rank that has them."""
        self._sizes_from = [[self._size(index, place) for index in indices] for indices in of_owner]
        """Elements that this rank has of the matrices of each owner."""
        self._is_even = all(cuts[index].is_even for index in self.mine)

    def _size(self, index: int, rank: int) -> int:
        return self._cuts[index].sizes[rank] * self._across[index]

    def collect(self, pieces: Sequence[Tensor]) -> Callable[[], dict[int, Tensor]]:
        """Begins to send pieces to their owners. What it returns waits, and gives {position: whole matrix} of this rank's."""
        sent = torch.cat([pieces[index].reshape(-1) for index in self.order])
        received = self._exchange(sent, list(map(sum, self._sizes_from)), list(map(sum, self._own_sizes)))
        return lambda: self._wholes(received())

    def _wholes(self, received: Tensor) -> dict[int, Tensor]:
        if not self.mine:
            return {}
        parts: Sequence[Tensor | list[Tensor]]
        if self._is_even:
            parts = torch.split(received.view(len(self._own_sizes), -1), self._own_sizes[0], dim=1)
        else:
            by_rank = torch.split(received, list(map(sum, self._own_sizes)))
            flat = [torch.split(part, sizes) for part, sizes in zip(by_rank, self._own_sizes, strict=True)]
            parts = [[part[number] for part in flat] for number in range(len(self.mine))]
        return {
            index: joined(of_matrix, self._across[index], self._cuts[index])
            for index, of_matrix in zip(self.mine, parts, strict=True)
        }

    def hand_out(
        self, moves: Mapping[int, tuple[Tensor, Tensor]], dtype: torch.dtype, device: torch.device
    ) -> tuple[list[Tensor], Tensor]:
        """Of {position: (matrix, number)} of this rank's matrices: its pieces of all matrices and all numbers, in ``order``.

        ``dtype`` is that of the matrices that come back.
        """
        counts = [len(sizes) for sizes in self._sizes_from]
        received = self._exchange(
            self._sent_back(moves) if moves else torch.empty(0, dtype=dtype, device=device),
            [sum(sizes) + len(self.mine) for sizes in self._own_sizes],
            [sum(sizes) + count for sizes, count in zip(self._sizes_from, counts, strict=True)],
        )()
        lengths = [length for sizes, count in zip(self._sizes_from, counts, strict=True) for length in (*sizes, count)]
        parts = iter(torch.split(received, lengths))
        pieces, numbers = [], []
        for sizes in self._sizes_from:
            pieces += [next(parts) for _ in sizes]
            numbers.append(next(parts))
        shapes = [self._shapes[index] for index in self.order]
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)], torch.cat(numbers)

    def _sent_back(self, moves: Mapping[int, tuple[Tensor, Tensor]]) -> Tensor:
        """For each rank its pieces of all matrices, followed by all numbers."""
        matrices = [moves[index][0] for index in self.mine]
        cuts = [self._cuts[index] for index in self.mine]
        numbers = torch.stack([moves[index][1] for index in self.mine]).to(matrices[0].dtype)
        ranks = len(self._own_sizes)
        if self._is_even:
            by_rank = [_by_rank(matrix, cut, ranks) for matrix, cut in zip(matrices, cuts, strict=True)]
            return torch.cat([*by_rank, numbers.expand(ranks, -1)], dim=1).view(-1)
        split = [
            torch.split(matrix, list(cut.sizes), dim=0 if cut.rows else 1)
            for matrix, cut in zip(matrices, cuts, strict=True)
        ]
        return torch.cat([p for rank in range(ranks) for p in (*[of[rank].reshape(-1) for of in split], numbers)])

    def _exchange(self, sent: Tensor, sizes_out: list[int], sizes_in: list[int]) -> Callable[[], Tensor]:
        """What each rank has for this one, one after the other, when it has been waited for."""
        received = sent.new_empty(sum(sizes_in))
        work = dist.all_to_all_single(
            received,
            sent,
            output_split_sizes=sizes_in,
            input_split_sizes=sizes_out,
            group=self._cuts[0].group,
            async_op=True,
        )
        assert work is not None  # this rank is part of the group

        def result() -> Tensor:
            work.wait()
            return received

        return result


def _by_rank(matrix: Tensor, cut: Cut, ranks: int) -> Tensor:
    """(ranks, n): each rank's piece of an evenly cut matrix; no -1 in the shapes, since a matrix may have no elements."""
    if not cut.rows:
        matrix = matrix.reshape(len(matrix), ranks, matrix.shape[1] // ranks).transpose(0, 1)
    return matrix.reshape(ranks, matrix.numel() // ranks)
