"""What the checks have in common: meshes, cuts, routes and optimizers."""

import functools

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import bort
import bort.nets
from bort.optim.sharded import routing

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


def routed(route, bucket=None):
    """All weights to owners ("own"), none of those that need not ("share"), or as the costs say (None)."""
    return routing(own=None if route is None else route == "own", bucket_bytes=bucket)


class Traffic(TorchDispatchMode):
    """Counts the collectives of a block and the bytes in their buffers."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace in ("c10d", "_c10d_functional"):
            tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
            size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            self.calls.append((func.__name__.split(".")[0].strip("_"), size))
        return func(*args, **(kwargs or {}))
