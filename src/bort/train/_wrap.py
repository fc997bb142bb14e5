"""How a network is run: its memory format, torch.compile, DDP or FSDP2."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bort.train._capture import side_stream
from bort.train._runtime import Runtime
from bort.train._world import World


class WholeMapConv2d(nn.Conv2d):
    """A convolution with a large kernel, usually of its input's own size: then it is one product of matrices.

    timm writes VGG's first linear layer as a 7 × 7 convolution on 512 channels. cuDNN's gradients of that take longer than
    the rest of the network, in channels_last ten times as long (docs/training.md)."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if input.shape[-2:] == weight.shape[-2:] and self.groups == 1 and self.padding in (0, (0, 0), "valid"):
            return F.linear(input.flatten(1), weight.flatten(1), bias)[..., None, None]
        return super()._conv_forward(input.contiguous(), weight, bias)  # type: ignore[no-any-return]


def lay_out(net: nn.Module, device: torch.device) -> nn.Module:
    """Move the network to a GPU in the memory format for tensor cores, channels_last; large kernels on many channels become
    `WholeMapConv2d`, in the plain format."""
    net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    for conv in net.modules():
        if type(conv) is nn.Conv2d and conv.in_channels // conv.groups > 64 and math.prod(conv.kernel_size) > 25:
            conv.__class__ = WholeMapConv2d  # keeps parameters, hooks and names
            conv.weight.data = conv.weight.data.contiguous()
    return net


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
