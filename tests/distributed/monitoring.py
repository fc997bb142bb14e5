"""What the processes of a pool run: measurements of weights that are shared, against the whole model in one process."""

import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter

import bort
from bort.monitor import Monitor, measure
from tests.distributed.common import mesh, random
from tests.distributed.training import Block


def _network():
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block()).double()


def _trained(model, monitor, steps=3):
    """The monitor's records of a short training. Every rank has its own data."""
    optimizer = bort.BortA(bort.param_groups(model, 1.0), lr=0.01)
    records = {}
    for step in range(steps):
        records[step] = monitor(optimizer, step)
        loss = model(random(10 * step + dist.get_rank(), 4, 5, 12)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {**records, steps: monitor.record(optimizer, steps)}, optimizer


def monitored_shards():
    """Of FSDP2's pieces the numbers of the whole weights, on all ranks, from the optimizer and from the model."""
    model = _network()
    start = measure(model, layers=True)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    records, optimizer = _trained(model, Monitor(every=2, layers=True))
    full = _network()
    full.load_state_dict({name: p.full_tensor() for name, p in model.state_dict().items()})
    return records, start, measure(model, layers=True), measure(full, layers=True), measure(optimizer, layers=True)


def unusual_cut():
    """A weight that is cut inside its kernels is left out, with the reason; the others are measured."""
    model = nn.Sequential(nn.Conv2d(3, 4, 4), nn.Conv2d(4, 5, 3))
    placed = distribute_tensor(model[0].weight.detach(), mesh((2,)), [Shard(2)])
    model[0].weight = nn.Parameter(placed)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        values = measure(model, layers=True)
    return sorted(values), [str(warning.message) for warning in warned]


def monitored_replicas(folder):
    """Under DDP only rank 0 writes, and one that does not measure at all keeps nobody waiting."""
    model = DistributedDataParallel(_network())
    rank = dist.get_rank()
    with SummaryWriter(f"{folder}/{rank}") as writer:
        alone = Monitor(every=1, to=writer)
        silent = Monitor(every=100)
        records, _ = _trained(model, alone if rank == 0 else silent)
    return records[3]
