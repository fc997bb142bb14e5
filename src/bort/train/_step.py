"""One step of training. The weights are updated only if loss, gradients and penalty are finite.

On the CPU, and with optimizers that cannot skip an update, the host checks this before each update. On a GPU that would make
the host wait for the device at each step. There a flag on the device makes a fused optimizer, or LAMB, skip the update, as
torch's GradScaler does: of the bad step, and of all later ones, until the host reads the flag.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bort.optim import Bort
from bort.train._feed import Batch, Feed
from bort.train._optimizer import Loss
from bort.train._world import full

# Entries of WWᵀW are at most ‖W‖³, and float32 ends at 3.4e38: below this norm no penalty can overflow.
LARGEST_NORM = 1e12
_WARM_UP = 3  # eager steps before the first capture: libraries and the optimizer allocate their memory in them


class Step:
    """Called with a batch, trains on it. What it has done is on the device: ``loss_sum`` is the sum of loss × images,
    ``good`` the number of updates, and ``bad`` is 1 from the first step on that was not finite."""

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
        self._all_good = torch.ones((), dtype=torch.bool, device=device)
        self._params = [p for group in optimizer.param_groups for p in group["params"]]
        self.constrained = [p for _, p in optimizer.constrained()] if isinstance(optimizer, Bort) else []
        # torch's mark of an optimizer that reads `found_inf` and skips the update by itself.
        can_skip = getattr(optimizer, "_step_supports_amp_scaling", False)
        self.host_checks = device.type != "cuda" or not can_skip
        if not self.host_checks:
            optimizer.found_inf = self.bad  # type: ignore[attr-defined]
            optimizer.grad_scale = None  # type: ignore[attr-defined]

    def __call__(self, batch: Batch) -> None:
        loss = self.forward(batch)
        self.optimizer.zero_grad()
        (loss if batch.weight == 1 else loss * batch.weight).backward()  # type: ignore[no-untyped-call]
        self._update(loss.detach(), batch.count)

    def forward(self, batch: Batch, model: nn.Module | None = None) -> Tensor:
        """The loss; of another model, if one is given."""
        inputs, targets = self.feed.read(batch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            return self.loss((model or self.model)(inputs), targets)

    def _update(self, loss: Tensor, count: int) -> None:
        gradients = [p.grad for p in self._params if p.grad is not None]
        norm = full(nn.utils.get_total_norm(gradients, foreach=True))
        # One comparison for loss and norm, since each kernel costs time in a small network. False for Inf and for NaN.
        good = (loss + norm).abs() < math.inf
        if self.constrained:
            weights = [p.detach() for p in self.constrained]
            good &= full(nn.utils.get_total_norm(weights, foreach=True)) < LARGEST_NORM
        self._all_good &= good
        torch.logical_not(self._all_good, out=self.bad)
        if self.host_checks and self.bad.item():
            return
        if self.clip is not None:
            nn.utils.clip_grads_with_norm_(self._params, self.clip, norm, foreach=True)
        self.optimizer.step()
        self.good += self._all_good
        self.loss_sum += torch.where(self._all_good, loss * count, 0.0)


class CapturedStep:
    """A step in a CUDA graph: one launch instead of a hundred, for networks whose kernels take less time than their launches.

    There is a graph for each size of batch: the usual one, and that of the last batch of an epoch. The first steps of each
    size run eagerly, then one is captured.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._eager_steps: dict[int, int] = {}  # by size of the batch
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def __call__(self, batch: Batch) -> None:
        assert batch.index is not None
        if batch.count not in self._graphs:
            eager_steps = self._eager_steps.get(batch.count, 0)
            if eager_steps < (1 if self._graphs else _WARM_UP):
                self._eager_steps[batch.count] = eager_steps + 1
                self._run_on_side_stream(batch)
                return
            self._capture(batch)
        graph, index = self._graphs[batch.count]
        index.copy_(batch.index)
        graph.replay()

    def _capture(self, batch: Batch) -> None:
        """Record a step; capturing does not execute it."""
        assert batch.index is not None
        graph, index = torch.cuda.CUDAGraph(), batch.index.clone()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            self._step(replace(batch, index=index))
        self._graphs[batch.count] = graph, index

    def _run_on_side_stream(self, batch: Batch) -> None:
        """Run a step eagerly. Not on the default stream: torch requires another one for steps before a capture."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step(batch)
        torch.cuda.current_stream().wait_stream(stream)
