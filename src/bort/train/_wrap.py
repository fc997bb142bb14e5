"""How a network is run: laid out in memory, compiled, replicated, sharded, captured."""

from __future__ import annotations

import torch
from torch import nn

from bort.train._feed import Feed, MemoryFeed
from bort.train._schema import Recipe
from bort.train._runtime import Runtime
from bort.train._world import World


def layout(net: nn.Module) -> torch.memory_format:
    """channels_last for what tensor cores do best, but not for a network with a large kernel on many channels, like the 7 × 7
    on 512 that timm makes of VGG's first linear layer: cuDNN's weight gradient of it is so slow in channels_last that the
    whole training takes in a tenth of the images (docs/training.md, rates-h200.json)."""
    convs = (module for module in net.modules() if isinstance(module, nn.Conv2d))
    if any(conv.kernel_size[0] * conv.kernel_size[1] > 25 and conv.in_channels // conv.groups > 64 for conv in convs):
        return torch.contiguous_format
    return torch.channels_last


def wrapped(net: nn.Module, runtime: Runtime, world: World, *, sharded: bool) -> nn.Module:
    """The network as the loop calls it. ``net`` keeps the names; if it is sharded, its weights become DTensors in place."""
    if sharded:
        from torch.distributed.fsdp import fully_shard

        for child in net.children():
            if any(True for _ in child.parameters()):
                fully_shard(child)
        fully_shard(net)
    model: nn.Module = net
    if runtime.compile:
        model = torch.compile(net)  # type: ignore[assignment]
    if world.size > 1 and not sharded:
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(model)
    return model


def can_capture(recipe: Recipe, runtime: Runtime, world: World, feed: Feed) -> bool:
    """Whether each step is the same sequence of kernels on the same memory, so that a CUDA graph can repeat it."""
    optim = recipe.optim
    return (
        runtime.graphs
        and not runtime.compile
        and world.device.type == "cuda"
        and world.size == 1
        and isinstance(feed, MemoryFeed)
        and optim.name in ("sgd", "bort-s")
        and optim.schedule == "constant"
        and not optim.warmup_epochs
        and optim.every == 1
    )
