"""The parts of a training: network, feed, optimizer and step, wrapped as the runtime says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from bort.data import Dataset, ImageData
from bort.train._build import data_of, network_of
from bort.train._feed import Batch, Feed, MemoryFeed
from bort.train._folder_feed import FolderFeed
from bort.train._optimizer import loss_for, optimizer_for
from bort.train._runtime import Runtime
from bort.train._schema import Recipe
from bort.train._step import CapturedStep, Step
from bort.train._world import World
from bort.train._wrap import can_capture, layout, wrapped


@dataclass(frozen=True)
class Parts:
    """What a training works with."""

    data: ImageData
    feed: Feed
    net: nn.Module
    """Without the wrappers of DDP and torch.compile: its names are those of a checkpoint."""
    optimizer: Optimizer
    step: Step
    """Run eagerly."""
    train_on: Callable[[Batch], None]
    """The same step, captured in a CUDA graph where that is possible."""
    autocast: bool
    """Whether the forward pass runs in bfloat16."""
    sharded: bool
    """Whether the weights are sharded over the processes (FSDP2)."""


def assemble(recipe: Recipe, runtime: Runtime, world: World) -> Parts:
    """Build the parts. The seed decides the initial weights, which are equal on all processes; from then on each process
    draws random numbers (dropout) of its own."""
    data = data_of(recipe, runtime.data_root)
    on_gpu = world.device.type == "cuda"
    autocast = recipe.precision == "bfloat16" or (recipe.precision == "auto" and on_gpu)
    sharded = runtime.parallel == "fsdp2" and world.size > 1
    torch.manual_seed(recipe.seed)
    net = network_of(recipe)
    memory_format = layout(net) if autocast and on_gpu else torch.contiguous_format
    feed: Feed
    if isinstance(data, Dataset):
        feed = MemoryFeed(data, recipe, world, memory_format)
    else:
        feed = FolderFeed(data, recipe, runtime, world, memory_format)
    net = net.to(world.device, memory_format=memory_format)  # type: ignore[call-overload]
    model = wrapped(net, runtime, world, sharded=sharded)
    optimizer = optimizer_for(recipe.optim, net, world.device)
    step = Step(model, optimizer, loss_for(recipe), feed, world.device, autocast, recipe.optim.clip)
    train_on = CapturedStep(step) if can_capture(recipe, runtime, world, feed) else step
    torch.manual_seed(recipe.seed + world.rank)
    return Parts(data, feed, net, optimizer, step, train_on, autocast, sharded)
