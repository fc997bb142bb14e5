"""What the checks have in common: meshes, cuts, routes and optimizers."""

import contextlib
import functools

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import bort
import bort.nets
from bort.optim.sharded import _cost

PLACEMENTS = {"0": Shard(0), "1": Shard(1), "r": Replicate(), "p": Partial()}


OPTIMIZERS = {
    "BortS": (bort.BortS, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "constraint": 0.3}),
    "BortA": (bort.BortA, {"lr": 0.01, "constraint": 0.3}),
    "BortL": (bort.BortL, {"lr": 0.01, "constraint": 0.3}),
}


@functools.cache
def mesh(shape):
    return init_device_mesh("cpu", shape, mesh_dim_names=tuple(f"d{i}" for i in range(len(shape))))


def cut(tensor, placements, mesh_shape):
    return distribute_tensor(tensor, mesh(mesh_shape), [PLACEMENTS[p] for p in placements], src_data_rank=None)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def random(seed, *shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


@contextlib.contextmanager
def routed(route, bucket=2**26):
    """All weights to owners ("own"), none of those that need not ("share"), or as the costs say (None)."""
    before = _cost.choose, _cost.BUCKET_BYTES
    _cost.BUCKET_BYTES = bucket
    if route is not None:
        _cost.choose = lambda matrices, machine: [route == "own" or matrix.special for matrix in matrices]
    try:
        yield
    finally:
        _cost.choose, _cost.BUCKET_BYTES = before
