"""One step of training. The weights are updated only if loss, gradients and penalty are finite.

On the CPU, and with optimizers that cannot skip an update, the host checks this before each update. On a GPU that would make
the host wait for the device at each step. There a flag on the device makes a fused optimizer, or LAMB, skip the update, as
torch's GradScaler does: of the bad step, and of all later ones, until the host reads the flag.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bort.optim import Bort
from bort.train._feed import Batch, Feed
from bort.train._optimizer import Loss
from bort.train._world import full

# Entries of WWᵀW are at most ‖W‖³, and float32 ends at 3.4e38: below this norm no penalty can overflow.
LARGEST_NORM = 1e12


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
        loss = self.loss_of(self.model, *self.feed.read(batch))
        self.optimizer.zero_grad()
        (loss if batch.weight == 1 else loss * batch.weight).backward()  # type: ignore[no-untyped-call]
        self._update(loss.detach(), batch.count)

    def close(self) -> None:
        """Nothing to free: a captured step has."""

    def loss_of(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            return self.loss(model(inputs), targets)

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
