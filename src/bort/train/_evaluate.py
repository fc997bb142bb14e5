"""What is measured of a network after an epoch: its accuracy on the test images, and the singular values of its layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from bort._inspect import uncompiled_name
from bort.layers import linear_maps, spectra
from bort.optim import Bort
from bort.train._feed import Feed
from bort.train._world import World, full


@torch.no_grad()
def test_scores(
    net: nn.Module, feed: Feed, world: World, *, autocast: bool, sharded: bool, after_batch: Callable[[], None]
) -> dict[str, float]:
    """Accuracy, top-5 accuracy and cross-entropy on the test images; ``after_batch`` is called after each batch.

    ``net`` is the network without DDP, which would wait for processes that have fewer batches. The layers of a sharded
    network are gathered by all processes together, so there each process tests all images.
    """
    net.eval()
    sums = torch.zeros(4, dtype=torch.float64, device=world.device)
    for inputs, labels in feed.test(World(world.device) if sharded else world):
        with torch.autocast(world.device.type, torch.bfloat16, enabled=autocast):
            logits = net(inputs)
        logits = logits.float()
        top1, top5 = (recognised(logits, labels, k).sum() for k in (1, 5))
        loss = F.cross_entropy(logits, labels, reduction="sum")
        sums += torch.stack([top1, top5, loss.double(), top1.new_tensor(len(labels))])
        after_batch()
    top1_sum, top5_sum, loss_sum, count = world.total(sums).tolist()
    if not count:
        raise ValueError("not one of the test images can be read")
    return {"accuracy": top1_sum / count, "top5": top5_sum / count, "test_loss": loss_sum / count}


def recognised(logits: Tensor, labels: Tensor, k: int = 1) -> Tensor:
    """For each image whether its class is among the k classes with the largest logits: 1, 0, or between them if several
    logits are equal: the probability that it is among the k if ties are broken at random. Their mean is the accuracy.

    ``topk`` and ``argmax`` break ties in an order of their own: a network with all logits 0 would "recognise" class 0.

    Example:
        >>> logits = torch.tensor([[2.0, 1.0, 1.0], [5.0, 5.0, 0.0]])
        >>> train.recognised(logits, torch.tensor([0, 1]))  # the second is one of two that are equal
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    own = logits.gather(1, labels[:, None])
    larger, equal = (logits > own).sum(1), (logits == own).sum(1)
    share = (k - larger).clamp(min=0).minimum(equal).double() / equal.clamp(min=1)
    return share * ~logits.isnan().any(1)


@torch.no_grad()
def layer_spectra(net: nn.Module, optimizer: Optimizer, scale: float) -> dict[str, Any]:
    """Distance to the constraint, whatever the optimizer, and range of singular values: of each layer, and of the network.

    Its residual is that of the worst layer that the optimizer constrains, or without the constraint of all layers.
    """
    maps = [(name, weight, linear) for name, weight, _, linear in linear_maps(net)]
    measured = spectra(((full(weight), linear) for _, weight, linear in maps), scale)
    # By their names: FSDP2 may have put whole weights in the place of the optimizer's.
    constrained = (
        {uncompiled_name(name) for name, _ in optimizer.constrained()} if isinstance(optimizer, Bort) else set()
    )
    own = [s.residual for (name, _, _), s in zip(maps, measured, strict=True) if name in constrained]
    return {
        "residual": max(own or [s.residual for s in measured]),
        "sigma": [min(s.smallest for s in measured), max(s.largest for s in measured)],
        "layers": {
            name: {"residual": spectrum.residual, "sigma": [spectrum.smallest, spectrum.largest]}
            for (name, _, _), spectrum in zip(maps, measured, strict=True)
        },
    }
