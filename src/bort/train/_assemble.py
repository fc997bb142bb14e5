"""The parts of a training: network, feed, optimizer and step, wrapped as the runtime says."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from bort.data import ImageData
from bort.train._build import data_of, network_of
from bort.train._capture import CapturedStep, reason_against
from bort.train._feed import Feed
from bort.train._images import feed_for
from bort.train._optimizer import loss_for, optimizer_for, with_constraint
from bort.train._runtime import Runtime
from bort.train._schema import Recipe
from bort.train._signals import StopRequest
from bort.train._step import Step
from bort.train._world import World
from bort.train._wrap import lay_out, wrapped


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
    train_on: Step | CapturedStep
    """The same step, captured in a CUDA graph where that is possible."""
    autocast: bool
    """Whether the forward pass runs in bfloat16."""
    sharded: bool
    """Whether the weights are sharded over the processes (FSDP2)."""
    notes: tuple[str, ...]
    """Where the images are, and how steps are made: a line each."""


def assemble(recipe: Recipe, runtime: Runtime, world: World, request: StopRequest | None = None) -> Parts:
    """Build the parts. The seed decides the initial weights, which are equal on all processes; from then on each process
    draws random numbers (dropout) of its own."""
    data = data_of(recipe, runtime.data_root)
    on_gpu = world.device.type == "cuda"
    autocast = recipe.precision == "bfloat16" or (recipe.precision == "auto" and on_gpu)
    sharded = runtime.parallel == "fsdp2" and world.size > 1
    torch.manual_seed(recipe.seed)
    net = network_of(recipe)
    for_tensor_cores = autocast and on_gpu
    memory_format = torch.channels_last if for_tensor_cores else torch.contiguous_format
    notes: list[str] = []
    feed = feed_for(data, recipe, runtime, world, memory_format, notes.append, request)
    net = lay_out(net, world.device) if for_tensor_cores else net.to(world.device)
    model = wrapped(net, runtime, world, sharded=sharded)
    reason = reason_against(runtime, world, sharded=sharded)
    optimizer = optimizer_for(with_constraint(recipe, feed.per_epoch), net, world.device, captured=reason is None)
    step = Step(model, optimizer, loss_for(recipe), feed, world.device, autocast, recipe.optim.clip)
    train_on = CapturedStep(step, world) if reason is None else step
    if runtime.compile:
        notes.append("network: compiled by torch.compile")
    if on_gpu:
        notes.append(
            "steps: in CUDA graphs, unless the network waits for the device"
            if reason is None
            else f"steps: launched one kernel at a time, {reason}"
        )
    torch.manual_seed(recipe.seed + world.rank)
    return Parts(data, feed, net, optimizer, step, train_on, autocast, sharded, tuple(notes))
