"""Device memory that recorded launches use at every step: one block of each kind, for all recordings of a param group.

Recordings are replayed one after the other, and what one leaves there is used up before the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class KeptMemory:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._blocks: dict[tuple[str, torch.dtype], Tensor] = {}
        self.grown = 0
        """How often a block has been replaced by a larger one: what has the address of the old one keeps that alive."""

    def block(self, kind: str, dtype: torch.dtype, size: int) -> Tensor:
        """At least ``size`` elements, not initialised."""
        kept = self._blocks.get((kind, dtype))
        if kept is None or kept.numel() < size:
            self.grown += kept is not None
            with torch.inference_mode(False):  # a tensor made in inference mode could not be written to after it
                kept = self._blocks[kind, dtype] = torch.empty(size, dtype=dtype, device=self._device)
        return kept

    def like(self, kind: str, tensors: Sequence[tuple[Tensor, torch.dtype]]) -> list[Tensor]:
        """Room for tensors of other dtypes, each laid out as its model."""
        sizes: dict[torch.dtype, int] = {}
        starts = []
        for model, dtype in tensors:
            starts.append(sizes.get(dtype, 0))
            sizes[dtype] = starts[-1] + -(-model.numel() // 64) * 64
        blocks = {dtype: self.block(kind, dtype, size) for dtype, size in sizes.items()}
        with torch.inference_mode(False):
            return [
                blocks[dtype].as_strided(model.shape, torch.empty_like(model, device="meta").stride(), start)
                for (model, dtype), start in zip(tensors, starts, strict=True)
            ]

    def blocks(self) -> list[Tensor]:
        return list(self._blocks.values())

    def clear(self) -> None:
        self._blocks.clear()
