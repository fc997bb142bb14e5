"""How a network is run: its memory format, torch.compile, DDP or FSDP2."""

from __future__ import annotations

import torch
from torch import nn

from bort.train._capture import side_stream
from bort.train._runtime import Runtime
from bort.train._world import World


def layout(net: nn.Module) -> torch.memory_format:
    """The memory format for tensor cores: channels_last, but not for a network with a large kernel on many channels, like the
    7 × 7 on 512 that timm makes of VGG's first linear layer. cuDNN's weight gradient of it is so slow in channels_last that
    the whole training runs at a tenth of the rate (docs/training.md, layout-h200.json)."""
    convs = (module for module in net.modules() if isinstance(module, nn.Conv2d))
    if any(conv.kernel_size[0] * conv.kernel_size[1] > 25 and conv.in_channels // conv.groups > 64 for conv in convs):
        return torch.contiguous_format
    return torch.channels_last


def wrapped(net: nn.Module, runtime: Runtime, world: World, *, sharded: bool) -> nn.Module:
    """The network as a step calls it, perhaps a wrapper around ``net``. Sharding turns the weights of ``net`` to DTensors."""
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

        if world.device.type != "cuda":
            return DistributedDataParallel(model)
        stream = side_stream(world.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # where its steps will be captured
            model = DistributedDataParallel(model)
        torch.cuda.current_stream().wait_stream(stream)
    return model
