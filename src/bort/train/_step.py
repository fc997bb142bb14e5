"""One step of training, watched: an update happens only if loss, gradients and penalty are finite.

On the CPU, and with optimizers that are not fused, the host looks before each update. With a fused optimizer on a GPU it
would have to wait for the device; there a flag on the device makes the optimizer's own kernel leave the weights as they are
(the way a GradScaler skips a step), from the bad step on, until the host looks.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bort.optim._bort import Bort
from bort.optim.sharded._layout import is_dtensor
from bort.optim._settings import constrained
from bort.train._feed import Batch, Feed
from bort.train._optimizer import Loss

# Entries of WWᵀW are at most ‖W‖³, and float32 ends at 3.4e38: below this norm no penalty can overflow.
LARGEST_NORM = 1e12
_WARM_UP = 3


class Step:
    """Call it with a batch. ``loss_sum`` grows by loss × images, ``good`` counts updates, ``bad`` is 1 after a bad one."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss: Loss,
        feed: Feed,
        device: torch.device,
        autocast: bool,
        clip: float | None,
    ) -> None:
        self.model, self.optimizer, self.loss, self.feed = model, optimizer, loss, feed
        self.device, self.clip, self.autocast = device, clip, autocast
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.good = torch.zeros((), dtype=torch.int64, device=device)
        self.bad = torch.zeros((), device=device)
        self._alive = torch.ones((), dtype=torch.bool, device=device)
        self._params = [p for group in optimizer.param_groups for p in group["params"]]
        is_bort = isinstance(optimizer, Bort)
        self._constrained = [p for group in optimizer.param_groups if is_bort for _, p in constrained(group)]
        fused = all(group.get("fused") for group in optimizer.param_groups)
        self.host_looks = device.type != "cuda" or not fused
        if not self.host_looks:
            optimizer.found_inf = self.bad  # type: ignore[attr-defined]
            optimizer.grad_scale = None  # type: ignore[attr-defined]

    def __call__(self, batch: Batch) -> None:
        loss = self.forward(batch)
        self.optimizer.zero_grad()
        (loss if batch.weight == 1 else loss * batch.weight).backward()  # type: ignore[no-untyped-call]
        self._update(loss.detach(), batch.count)

    def forward(self, batch: Batch, model: nn.Module | None = None) -> Tensor:
        inputs, targets = self.feed.read(batch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            return self.loss((model or self.model)(inputs), targets)

    def _update(self, loss: Tensor, count: int) -> None:
        gradients = [p.grad for p in self._params if p.grad is not None]
        norm = whole_norm(nn.utils.get_total_norm(gradients, foreach=True))
        # In as few kernels as can be: for a small network each of them counts. NaN is not smaller than anything.
        good = (loss + norm).abs() < math.inf
        if self._constrained:
            weights = [p.detach() for p in self._constrained]
            good &= whole_norm(nn.utils.get_total_norm(weights, foreach=True)) < LARGEST_NORM
        self._alive &= good
        torch.logical_not(self._alive, out=self.bad)
        if self.host_looks and self.bad.item():
            return
        if self.clip is not None:
            nn.utils.clip_grads_with_norm_(self._params, self.clip, norm, foreach=True)
        self.optimizer.step()
        self.good += self._alive
        self.loss_sum += torch.where(self._alive, loss * count, 0.0)


class CapturedStep:
    """The same in a CUDA graph: one launch instead of a hundred, for networks whose kernels are shorter than their launches.

    There is a graph for each size of batch: the usual one, and that of the last batch of an epoch. The first steps of each
    run as they are, then one is captured.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._seen: dict[int, int] = {}
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def __call__(self, batch: Batch) -> None:
        assert batch.index is not None
        seen = self._seen.get(batch.count, 0)
        self._seen[batch.count] = seen + 1
        if batch.count not in self._graphs:
            if seen < (1 if self._graphs else _WARM_UP):
                self._aside(batch)
                return
            self._capture(batch)
        graph, index = self._graphs[batch.count]
        index.copy_(batch.index)
        graph.replay()

    def _capture(self, batch: Batch) -> None:
        """Records a step without making it."""
        assert batch.index is not None
        graph, index = torch.cuda.CUDAGraph(), batch.index.clone()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            self._step(replace(batch, index=index))
        self._graphs[batch.count] = graph, index

    def _aside(self, batch: Batch) -> None:
        """On a stream of its own, where the capture's is: what a first step allocates must not be on the default one."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step(batch)
        torch.cuda.current_stream().wait_stream(stream)


def whole_norm(norm: Tensor) -> Tensor:
    """A norm over sharded gradients is itself sharded."""
    return norm.full_tensor() if is_dtensor(norm) else norm  # type: ignore[attr-defined]
