"""The gradients of a coupled penalty: where the kernels read them, and where the penalised ones go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bort.optim.kernels._division import is_capturing

if TYPE_CHECKING:
    from bort.optim.kernels._tiles import Tiling


class PenalisedGradients:
    """Memory for the results of one tiling, and the address table through which the kernels find it and the gradients.

    The table lies in device memory: gradients that have moved (``zero_grad`` frees them, DDP puts them into buckets) are
    written to it, and a recorded launch stays valid.

    Args:
        tiling: the tables of the weights.
        memory: for the results, at least ``tiling.result_size`` elements of its dtype. Default: new memory.
    """

    def __init__(self, tiling: Tiling, memory: Tensor | None = None) -> None:
        if memory is None:
            memory = torch.empty(tiling.result_size, dtype=tiling.dtype, device=tiling.device)
        with torch.inference_mode(False):  # a tensor made in inference mode could not be written to after it
            self.results = [memory.as_strided(shape, stride, offset) for offset, shape, stride in tiling.results]
            members = [member for batch in tiling.batches for member in batch.members]
            self.table = torch.zeros(len(members), 2, dtype=torch.int64, device=tiling.device)
        self._order = members
        self._read: tuple[list[int], list[tuple[int, ...]]] = ([], [])
        """Addresses and strides of the gradients in the table."""
        self.copies: dict[int, Tensor] = {}
        """Of gradients that lie in memory otherwise than their weights, by position."""

    def read_from(self, gradients: Sequence[Tensor]) -> None:
        """Before a launch, if a gradient has moved or is copied: where they are, in the order of the tiling's weights."""
        found = [gradient.data_ptr() for gradient in gradients], [gradient.stride() for gradient in gradients]
        if found != self._read:
            self.copies = {
                position: torch.empty_like(result)
                for position, (gradient, result) in enumerate(zip(gradients, self.results, strict=True))
                if not _is_laid_out_alike(gradient, result)
            }
            addresses = [
                address
                for position in self._order
                for address in (
                    self.copies.get(position, gradients[position]).data_ptr(),
                    self.results[position].data_ptr(),
                )
            ]
            _write(addresses, self.table.view(-1))
            self._read = found
        for position, copy in self.copies.items():
            copy.copy_(gradients[position])


def _is_laid_out_alike(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors of one shape have their elements in the same order. The stride of a side of 1 means nothing, and
    differs between channels_last and contiguous 1 × 1 convolutions."""
    return all(size == 1 or a == b for size, a, b in zip(first.shape, first.stride(), second.stride(), strict=True))


def _write(numbers: list[int], table: Tensor) -> None:
    """Without waiting for the device, which may still read the table for the step before: what is written comes after that
    in the order of the stream."""
    if is_capturing():
        # As arguments of kernels, which a CUDA graph keeps. A copy would read host memory again at each replay.
        table.zero_()
        torch._foreach_add_(list(torch.split(table, 1)), numbers)
        return
    source = torch.tensor(numbers, dtype=torch.int64)
    # torch's allocator does not give pinned memory to anybody else before the copies from it are done.
    table.copy_(source.pin_memory() if table.is_cuda else source, non_blocking=True)
