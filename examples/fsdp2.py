"""Bort with sharded weights (FSDP2): exact, though no rank ever holds a whole matrix. Saves a checkpoint of shards.

torchrun --nproc-per-node 4 examples/fsdp2.py [FOLDER]
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

import bort


def train(device: torch.device) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = torch.distributed.init_device_mesh(device.type, (ranks,))

    torch.manual_seed(0)  # the same data and weights everywhere
    x = torch.randn(1024, 32, device=device)
    y = (x @ torch.randn(32, 5, device=device)).argmax(dim=1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)).to(device)
    for layer in (model[0], model[2], model[4], model):
        fully_shard(layer, mesh=mesh)
    groups = bort.param_groups(model, constraint=10.0, exclude=("4.*",))  # after fully_shard, as with any optimizer
    optimizer = bort.BortA(groups, lr=0.01)  # decoupled: λ is felt as lr·λ, against steps of the size of lr

    for epoch in range(5):
        for batch in torch.randperm(len(x), device=device).split(64):
            part = batch.chunk(ranks)[rank]  # of this process
            loss = nn.functional.cross_entropy(model(x[part]), y[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        residuals = optimizer.residuals()  # on all ranks
        if rank == 0:
            distances = ", ".join(f"{name} {distance:.3f}" for name, distance in residuals.items())
            print(f"epoch {epoch + 1:2}: loss {loss.item():.3f}, distance to the constraint: {distances}", flush=True)

    if len(sys.argv) > 1:
        model_state, optimizer_state = get_state_dict(model, optimizer)
        dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=sys.argv[1])


on_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if on_gpu else "gloo")
device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
train(device)
dist.barrier()  # a rank that leaves early can make gloo abort the others
dist.destroy_process_group()
