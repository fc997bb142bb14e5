"""``shard=True``: where every rank has every weight (DDP), each computes some of the penalties, and all exchange them.

It saves products and costs one exchange of the weights' size, so it pays where products are slow and links are fast. A trial
decides: after one step to warm up, a step of each kind is timed, and all ranks keep what was faster for the slowest of
them. What is exchanged are directions, which depend on the weights alone: no rank waits for another one's gradients.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from bort.optim._spec import Moves, PenaltySpec, Weight
from bort.optim._stability import Stability
from bort.optim.kernels import Kernels
from bort.optim.sharded import _cost
from bort.optim.sharded._routing import current_routing

# The steps of the trial, of each kind one to warm up and one to time.
_ALONE, _SHARED = (0, 1), (2, 3)


class DdpSharing:
    """How one param group is shared out. At every step all ranks call ``begin``, then ``directions`` if the step is a shared
    one, then ``end``."""

    def __init__(self) -> None:
        self._pays: bool | None = None
        self._trial_step = 0
        self._seconds = [0.0, 0.0]
        self._started = 0.0
        self._weights: list[Weight] = []
        self._owners: list[int] = []
        self._kernels = Kernels()

    def begin(self, weights: list[Weight]) -> bool:
        """Whether the penalties of this step are shared out."""
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
        outcome = self._outcome()
        if outcome is not None:
            return outcome
        if self._is_timed():
            _wait(device)
            self._started = time.perf_counter()
        return self._trial_step in _SHARED

    def directions(self, spec: PenaltySpec, stability: Stability) -> Iterator[Moves]:
        """Of all weights: this rank computes its own, and gets the others'."""
        rank = dist.get_rank()
        own = [weight for weight, owner in zip(self._weights, self._owners, strict=True) if owner == rank]
        computed = self._kernels.directions(own, spec, stability)
        for dtype in dict.fromkeys(p.dtype for _, p in self._weights):
            members = [
                (weight, owner)
                for weight, owner in zip(self._weights, self._owners, strict=True)
                if weight[1].dtype is dtype
            ]
            yield _exchange(members, computed, torch.promote_types(dtype, torch.float32))

    def end(self) -> None:
        """After the weights have moved."""
        if self._outcome() is not None:
            return
        device = self._weights[0][1].device
        if self._is_timed():
            _wait(device)
            self._seconds[self._trial_step == _SHARED[1]] = time.perf_counter() - self._started
        self._trial_step += 1
        if self._trial_step > _SHARED[1]:
            slowest = torch.tensor(self._seconds, dtype=torch.float64).to(device)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            alone, shared = slowest.tolist()
            self._pays = shared < alone

    def _outcome(self) -> bool | None:
        """Whether sharing pays; None during the trial."""
        fixed = current_routing().share
        return self._pays if fixed is None else fixed

    def _is_timed(self) -> bool:
        return self._trial_step in (_ALONE[1], _SHARED[1])


def _exchange(
    members: list[tuple[Weight, int]], computed: dict[int, tuple[Tensor, Tensor]], dtype: torch.dtype
) -> Moves:
    """One call: the directions of every owner, followed by its residuals. ``computed`` are this rank's, by slot."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    by_owner = [[weight for weight, owner in members if owner == r] for r in range(ranks)]
    sizes = [[*(p.numel() for _, p in weights), len(weights)] for weights in by_owner]
    longest = max(map(sum, sizes))
    own = [computed[slot] for slot, _ in by_owner[rank]]
    parts = [part.reshape(-1).to(dtype) for column in zip(*own, strict=True) for part in column]
    padding = members[0][0][1].new_zeros(longest - sum(sizes[rank]), dtype=dtype)
    sent = torch.cat([*parts, padding])
    received = sent.new_empty(ranks * longest)
    dist.all_gather_into_tensor(received, sent)
    moves: list[Tensor] = []
    residuals = []
    for weights, lengths, part in zip(by_owner, sizes, torch.split(received, longest), strict=True):
        *directions, numbers = torch.split(part[: sum(lengths)], lengths)
        moves += [direction.view(p.shape) for (_, p), direction in zip(weights, directions, strict=True)]
        residuals.append(numbers)
    return [weight for weights in by_owner for weight in weights], moves, torch.cat(residuals)


def _check_alike(weights: Sequence[Tensor]) -> None:
    """Refuse ranks that have different weights: under ``shard=True`` the results of one rank are used by the others."""
    shapes = zlib.crc32(repr([(tuple(p.shape), str(p.dtype)) for p in weights]).encode())
    total = sum(p.detach().double().sum() for p in weights)
    marks = torch.stack(
        [torch.tensor(float(shapes), dtype=torch.float64).to(weights[0].device), torch.as_tensor(total)]
    )
    extremes = torch.cat([marks, -marks])
    dist.all_reduce(extremes, op=dist.ReduceOp.MAX)
    largest, smallest = extremes[:2], -extremes[2:]
    if not torch.allclose(largest, smallest, rtol=1e-6, atol=1e-6) and not torch.isnan(extremes).any():
        what = "different parameters" if largest[0] != smallest[0] else "different values in the same parameters"
        raise RuntimeError(
            f"shard=True: the ranks have {what}. It is for replicated weights, as under DistributedDataParallel, with the "
            "optimizer made in the same way on every rank; sharded weights (FSDP2) are shared without it."
        )


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
