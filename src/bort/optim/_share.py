"""``shard=True``: where every rank has every weight (DDP), each computes its share of the penalties, and all exchange them.

It saves products and costs one exchange of the weights' size, so it pays where products are dear and links are fast. Nobody
has to know: after one step to warm up, a step of each kind is timed, and all ranks keep what was faster for the slowest of
them. The results are the same bits either way.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bort.optim import _cost
from bort.optim._dense import Weight

_ALONE, _TOGETHER = (0, 1), (2, 3)  # trial steps: one to warm up, one to time


class Share:
    """How one param group is shared. Used in turns: ``mine``, the penalties of what it returned, ``exchange``."""

    def __init__(self) -> None:
        self.pays: bool | None = None
        self._turn = 0
        self._seconds = [0.0, 0.0]
        self._started = 0.0
        self._known: tuple[Any, list[int]] = ((), [])

    def mine(self, weights: list[Weight]) -> list[Weight]:
        """The weights that this rank is to compute in this step: its share, or all."""
        device = weights[0][1].device
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("shard=True cannot be captured in a CUDA graph: use shard=False with a captured step")
        key = [id(p) for _, p in weights]
        if self._known[0] != key:
            _check_alike([p for _, p in weights])
            costs = [_cost.Matrix(len(p), p[0].numel(), 1, False).flops for _, p in weights]
            self._known = (key, _cost.assign(costs, dist.get_world_size())[0])
        if self.pays is None and self._turn in (_ALONE[1], _TOGETHER[1]):
            _wait(device)
            self._started = time.perf_counter()
        return self._share(weights) if self._is_shared() else weights

    def exchange(self, weights: list[Weight], results: dict[int, Tensor], residuals: Tensor) -> None:
        """Fill in the results (by slot) and the residuals of the weights that other ranks have computed."""
        if self._is_shared():
            self._gather(weights, results, residuals)
        if self.pays is None:
            self._time(weights[0][1].device)

    def others(self, weights: list[Weight]) -> list[Weight]:
        """Of the weights, those that another rank computes in this step."""
        if not self._is_shared():
            return []
        rank = dist.get_rank()
        return [weight for weight, owner in zip(weights, self._known[1], strict=True) if owner != rank]

    def _is_shared(self) -> bool:
        return self._turn in _TOGETHER if self.pays is None else self.pays

    def _share(self, weights: list[Weight]) -> list[Weight]:
        rank = dist.get_rank()
        return [weight for weight, owner in zip(weights, self._known[1], strict=True) if owner == rank]

    def _gather(self, weights: list[Weight], results: dict[int, Tensor], residuals: Tensor) -> None:
        rank, owners = dist.get_rank(), self._known[1]
        for dtype in dict.fromkeys(p.dtype for _, p in weights):
            members = [(slot, owner) for (slot, p), owner in zip(weights, owners, strict=True) if p.dtype is dtype]
            lengths = [
                sum(results[slot].numel() for slot, owner in members if owner == r)
                for r in range(dist.get_world_size())
            ]
            mine = [results[slot].reshape(-1) for slot, owner in members if owner == rank]
            some = results[members[0][0]]
            sent = torch.cat([*mine, some.new_zeros(max(lengths) - lengths[rank])])
            received = sent.new_empty(dist.get_world_size() * len(sent))
            dist.all_gather_into_tensor(received, sent)
            position = [r * len(sent) for r in range(dist.get_world_size())]
            for slot, owner in members:
                result = results[slot]
                if owner != rank:
                    part = received[position[owner] : position[owner] + result.numel()]
                    result.copy_(part.view(result.shape))
                position[owner] += result.numel()
        found = torch.zeros_like(residuals)
        slots = [slot for (slot, _), owner in zip(weights, owners, strict=True) if owner == rank]
        found[slots] = residuals[slots]
        dist.all_reduce(found)
        every = [slot for slot, _ in weights]
        residuals[every] = found[every]

    def _time(self, device: torch.device) -> None:
        if self._turn in (_ALONE[1], _TOGETHER[1]):
            _wait(device)
            self._seconds[self._turn == _TOGETHER[1]] = time.perf_counter() - self._started
        self._turn += 1
        if self._turn > _TOGETHER[1]:
            slowest = torch.tensor(self._seconds, dtype=torch.float64).to(device)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            alone, together = slowest.tolist()
            self.pays = together < alone


def _check_alike(weights: Sequence[Tensor]) -> None:
    """Under ``shard=True`` a rank's results replace the others': they had better mean the same weights."""
    shapes = zlib.crc32(repr([(tuple(p.shape), str(p.dtype)) for p in weights]).encode())
    total = sum(p.detach().double().sum() for p in weights)
    mine = torch.stack([torch.tensor(float(shapes), dtype=torch.float64).to(weights[0].device), torch.as_tensor(total)])
    signs = torch.cat([mine, -mine])
    dist.all_reduce(signs, op=dist.ReduceOp.MAX)
    largest, smallest = signs[:2], -signs[2:]
    if not torch.allclose(largest, smallest, rtol=1e-6, atol=1e-6) and not torch.isnan(signs).any():
        what = "different parameters" if largest[0] != smallest[0] else "different values in the same parameters"
        raise RuntimeError(
            f"shard=True: the ranks have {what}. It is for replicated weights, as under DistributedDataParallel, with the "
            "optimizer made in the same way on every rank; sharded weights (FSDP2) are shared without it."
        )


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
