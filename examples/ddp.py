"""Bort under DistributedDataParallel: nothing to configure, the same weights on every rank.

torchrun --nproc-per-node 2 examples/ddp.py
"""

import torch
import torch.distributed as dist
import torch.distributed.nn  # DDP imports it: after init_process_group, it would keep gloo's threads alive
from torch import nn

import bort


def train(device: torch.device) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same data and weights everywhere
    x = torch.randn(1024, 32, device=device)
    y = (x @ torch.randn(32, 5, device=device)).argmax(dim=1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)).to(device)
    model = nn.parallel.DistributedDataParallel(model)
    groups = bort.param_groups(model, constraint=1.0, exclude=("4.*",))
    # Share the penalty's products where that is faster.
    optimizer = bort.BortS(groups, lr=0.05, momentum=0.9, shard=True)

    for epoch in range(5):
        for batch in torch.randperm(len(x), device=device).split(64):
            part = batch.chunk(ranks)[rank]  # of this process
            loss = nn.functional.cross_entropy(model(x[part]), y[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            distances = ", ".join(f"{name} {distance:.3f}" for name, distance in optimizer.residuals().items())
            print(f"epoch {epoch + 1:2}: loss {loss.item():.3f}, distance to the constraint: {distances}", flush=True)


on_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if on_gpu else "gloo")
device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
train(device)  # in a function: nothing of it holds the process group when that ends
dist.barrier()  # a rank that leaves early can make gloo abort the others
dist.destroy_process_group()
