"""What is known of a network after an epoch: how it does on the test images, and where its layers stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bort.layers import spectrum
from bort.optim.sharded._layout import whole
from bort.layers import linear_maps
from bort._precision import own_precision
from bort.train._feed import Feed
from bort.train._world import World


@torch.no_grad()
def test(
    net: nn.Module, feed: Feed, world: World, autocast: bool, sharded: bool, pause: Callable[[], None]
) -> dict[str, float]:
    """Accuracy, top-5 accuracy and cross-entropy on the test images.

    ``net`` is the bare network, not DDP's, which would wait for processes that have fewer batches. Sharded weights are
    gathered by all processes together, so there each one tests on everything.
    """
    net.eval()
    sums = torch.zeros(4, dtype=torch.float64, device=world.device)
    for inputs, labels in feed.test(World(world.device) if sharded else world):
        with torch.autocast(world.device.type, torch.bfloat16, enabled=autocast):
            outputs = net(inputs)
        outputs = outputs.float()
        right, near = (recognised(outputs, labels, k).sum() for k in (1, 5))
        loss = F.cross_entropy(outputs, labels, reduction="sum")
        sums += torch.stack([right, near, loss.double(), right.new_tensor(len(labels))])
        pause()
    hits, among_five, loss_sum, count = world.total(sums).tolist()
    if not count:
        raise ValueError("not one of the test images can be read")
    return {"accuracy": hits / count, "top5": among_five / count, "test_loss": loss_sum / count}


def recognised(outputs: Tensor, labels: Tensor, k: int = 1) -> Tensor:
    """For each image whether its class is among the k with the largest outputs: 1 or 0, or the part of equal ones that are.

    Which of equal outputs topk or argmax takes is chance: a network that says 0 for all classes has not named the right one.
    """
    own = outputs.gather(1, labels[:, None])
    above, level = (outputs > own).sum(1), (outputs == own).sum(1)
    share = (k - above).clamp(min=0).minimum(level).double() / level.clamp(min=1)
    return share * ~outputs.isnan().any(1)


@torch.no_grad()
def measure(net: nn.Module, device: torch.device) -> dict[str, Any]:
    """Each layer's distance to the constraint and its range of singular values, whatever the optimizer."""
    found = {}
    with own_precision("highest", device):
        for name, p, _, linear in linear_maps(net):
            at = spectrum(whole(p), blocks=linear.blocks, transposed=linear.transposed)
            found[name] = {"residual": at.residual, "sigma": [at.smallest, at.largest]}
    return found
