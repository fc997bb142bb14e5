"""A fault of torch's fused SGD: after a first step that it skips, its momentum is whatever was in memory.

It makes the momentum with ``empty_like`` and leaves it to its kernel to write there, which does nothing if GradScaler has
found an inf. The next step adds its gradient to that. SGD's other forms are not called for such a step. (Where there is
dampening they take the first gradient whole; after a skipped first step the fused form still dampens it, since only the host
could tell it that this is the first.)
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from bort.optim.sharded import local


def without_momentum(optimizer: Optimizer) -> list[Tensor]:
    """Before a step: the weights whose momentum it will make."""
    if not isinstance(optimizer, SGD):
        return []
    return [
        p
        for group in optimizer.param_groups
        if group["fused"] and group["momentum"]
        for p in group["params"]
        if p.grad is not None and optimizer.state.get(p, {}).get("momentum_buffer") is None
    ]


@torch.no_grad()
def clear_momentum(optimizer: Optimizer, weights: list[Tensor], found_inf: Tensor) -> None:
    """After it: 0 where it was skipped, which the host does not know."""
    for p in weights:
        momentum = optimizer.state.get(p, {}).get("momentum_buffer")  # a subclass may keep none
        if momentum is not None:
            local(momentum).masked_fill_(found_inf.reshape(()).to(p.device) != 0, 0.0)
