"""Collectives for many matrices in one call: sums and gathers.

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
    ranks = len(cuts[0].sizes)
    lengths = [max(cut.sizes) * cut.across(piece.shape) for piece, cut in zip(pieces, cuts, strict=True)]
    parts = []
    for piece, length in zip(pieces, lengths, strict=True):
        parts.append(piece.reshape(-1))
        if piece.numel() < length:
            parts.append(piece.new_zeros(length - piece.numel()))
    sent = torch.cat(parts)
    received = sent.new_empty(ranks, len(sent))
    dist.all_gather_into_tensor(received.view(-1), sent, group=cuts[0].group)
    by_matrix = torch.split(received, lengths, dim=1)
    return [joined(parts, cut.across(p.shape), cut) for parts, p, cut in zip(by_matrix, pieces, cuts, strict=True)]


def joined(parts: Tensor | Sequence[Tensor], across: int, cut: Cut) -> Tensor:
    """A matrix, from the flat and perhaps padded pieces of all ranks; ``across`` is the side that is not cut."""
    if cut.is_even and isinstance(parts, Tensor):
        if cut.rows:
            return parts.reshape(-1, across)
        return parts.reshape(len(parts), across, -1).transpose(0, 1).reshape(across, -1)
    if cut.rows:
        return torch.cat([part[: s * across].view(s, across) for part, s in zip(parts, cut.sizes, strict=True)])
    return torch.cat([part[: s * across].view(across, s) for part, s in zip(parts, cut.sizes, strict=True)], dim=1)
