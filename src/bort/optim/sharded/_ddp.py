"""``shard=True``: where every rank has every weight (DDP), each computes its share of the penalties, and all exchange them.

It saves products and costs one exchange of the weights' size, so it pays where products are dear and links are fast. Nobody
has to know: after one step to warm up, a step of each kind is timed, and all ranks keep what was faster for the slowest of
them. What is exchanged are directions, which depend on the weights alone: gradients play no part in it, so a rank that
lacks one leaves nobody waiting.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bort.optim.sharded import _cost
from bort.optim.kernels import _run as _cuda
from bort.optim._plain_torch import Judged, Weight

_ALONE, _TOGETHER = (0, 1), (2, 3)  # trial steps: one to warm up, one to time


class Share:
    """How one param group is shared. ``directions`` is called at every step, by all ranks or by none."""

    def __init__(self) -> None:
        self.pays: bool | None = None
        self._turn = 0
        self._seconds = [0.0, 0.0]
        self._started = 0.0
        self._weights: list[Weight] = []
        self._owners: list[int] = []
        self._plans: dict[Any, Any] = {}

    def begin(self, weights: list[Weight]) -> bool:
        """Whether this step is a shared one."""
        device = weights[0][1].device
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("shard=True cannot be captured in a CUDA graph: use shard=False with a captured step")
        if torch.is_grad_enabled():
            raise RuntimeError("differentiable=True: a step with shard=True cannot be differentiated through")
        if len(weights) != len(self._weights) or any(
            p is not q for (_, p), (_, q) in zip(weights, self._weights, strict=True)
        ):
            _check_alike([p for _, p in weights])
            costs = [_cost.Matrix(len(p), p[0].numel(), 1, False).flops for _, p in weights]
            self._weights, self._owners = weights, _cost.assign(costs, dist.get_world_size())[0]
        if self.pays is None and self._turn in (_ALONE[1], _TOGETHER[1]):
            _wait(device)
            self._started = time.perf_counter()
        return self._turn in _TOGETHER if self.pays is None else self.pays

    def directions(self, group: dict[str, Any], judged: Judged) -> Iterator[tuple[Weight, Tensor, Tensor]]:
        """(weight, direction, distance) of all weights: this rank computes its share, and gets the others'."""
        rank = dist.get_rank()
        mine = [weight for weight, owner in zip(self._weights, self._owners, strict=True) if owner == rank]
        found = _cuda.directions(mine, group, judged, self._plans)
        for dtype in dict.fromkeys(p.dtype for _, p in self._weights):
            width = torch.promote_types(dtype, torch.float32)
            members = [
                (weight, owner)
                for weight, owner in zip(self._weights, self._owners, strict=True)
                if weight[1].dtype is dtype
            ]
            yield from _gather(members, found, width)

    def end(self) -> None:
        """After the weights have moved."""
        if self.pays is not None:
            return
        device = self._weights[0][1].device
        if self._turn in (_ALONE[1], _TOGETHER[1]):
            _wait(device)
            self._seconds[self._turn == _TOGETHER[1]] = time.perf_counter() - self._started
        self._turn += 1
        if self._turn > _TOGETHER[1]:
            slowest = torch.tensor(self._seconds, dtype=torch.float64).to(device)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            alone, together = slowest.tolist()
            self.pays = together < alone


def _gather(
    members: list[tuple[Weight, int]], found: dict[int, tuple[Tensor, Tensor]], dtype: torch.dtype
) -> Iterator[tuple[Weight, Tensor, Tensor]]:
    """One exchange: every owner's directions, each followed by its distance."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    lengths = [sum(p.numel() + 1 for (_, p), owner in members if owner == r) for r in range(ranks)]
    sent = torch.zeros(max(lengths), dtype=dtype, device=members[0][0][1].device)
    parts = [
        part
        for (slot, _), owner in members
        if owner == rank
        for part in (found[slot][0].reshape(-1), found[slot][1].view(1))
    ]
    if parts:
        sent[: lengths[rank]] = torch.cat([part.to(dtype) for part in parts])
    received = sent.new_empty(ranks * len(sent))
    dist.all_gather_into_tensor(received, sent)
    at = [r * len(sent) for r in range(ranks)]
    for (slot, p), owner in members:
        direction = received[at[owner] : at[owner] + p.numel()].view(p.shape)
        yield (slot, p), direction, received[at[owner] + p.numel()]
        at[owner] += p.numel() + 1


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
