"""What the processes of a pool run: weights cut in any way, against whole ones."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.placement_types import _StridedShard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import bort
import bort.nets
from tests.distributed.common import OPTIMIZERS, cut, mesh, random, routed, whole


def shapes_step(
    shapes,
    placements,
    mesh_shape,
    optimizer="BortS",
    size=0.3,
    dtype="float64",
    steps=3,
    route=None,
    bucket=2**26,
    seed=0,
    **settings,
):
    """Weights of any shapes, cut in any way, against the same weights whole: the largest difference after some steps."""
    with routed(route, bucket):
        return _shapes_step(
            shapes, placements, mesh_shape, optimizer, size, getattr(torch, dtype), steps, seed, settings
        )


def _shapes_step(shapes, placements, mesh_shape, optimizer, size, dtype, steps, seed, settings):
    cls, options = OPTIMIZERS[optimizer]
    start = [size * random(seed + i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]
    plain = [nn.Parameter(w.clone()) for w in start]
    sharded = [nn.Parameter(cut(w, placements, mesh_shape)) for w in start]
    pair = [cls(params, **(options | settings)) for params in (plain, sharded)]
    for step in range(steps):
        for i, (p, q) in enumerate(zip(plain, sharded, strict=True)):
            p.grad = 0.1 * random(seed + 100 * step + i, *p.shape, dtype=dtype)
            q.grad = cut(p.grad, placements, mesh_shape)
        before = [q.grad for q in sharded]
        for each in pair:
            each.step()
        assert all(q.grad is grad for q, grad in zip(sharded, before, strict=True)), "the gradient is the user's"
    found, expected = (each.residuals() for each in pair)
    assert found.keys() == expected.keys()
    # In bfloat16 SGD itself rounds otherwise on a piece than on the whole: torch's vectorised loops differ from their tails.
    tolerance = 2e-3 if dtype is torch.bfloat16 else 1e-5
    for name in found:
        assert abs(found[name] - expected[name]) < tolerance * (1 + abs(expected[name])), (name, found, expected)
    scale = max(1.0, *[p.detach().abs().max().item() for p in plain])
    return max((whole(q).detach() - p.detach()).abs().max().item() for p, q in zip(plain, sharded, strict=True)) / scale


def blocks_step(shapes, blocks, placements):
    """Weights that are constrained in blocks of rows: against whole ones."""
    ranks = (dist.get_world_size(),)
    start = [0.3 * random(i, *shape) for i, shape in enumerate(shapes)]
    plain = [nn.Parameter(w.clone()) for w in start]
    sharded = [nn.Parameter(cut(w, placements, ranks)) for w in start]
    for params in (plain, sharded):
        for p in params:
            p.grad = torch.zeros_like(p)
        bort.BortS([{"params": params, "blocks": blocks}], lr=0.1, constraint=0.3).step()
    return max((whole(q).detach() - p.detach()).abs().max().item() for p, q in zip(plain, sharded, strict=True))


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


def communication(shapes, placements, mesh_shape, route=None, steps=2, optimizer="BortA", dtype="float32", **settings):
    """The collectives of one optimizer step: (name, bytes in its buffers) in order, checked against CommDebugMode."""
    with routed(route):
        weights = [
            nn.Parameter(cut(random(0, *s, dtype=getattr(torch, dtype)), placements, mesh_shape)) for s in shapes
        ]
        cls, options = OPTIMIZERS[optimizer]
        each = cls(weights, **(options | settings))
        for _ in range(steps):
            for p in weights:
                p.grad = torch.zeros_like(p)
            with CommDebugMode() as debug:
                each.step()
            with Traffic() as traffic:
                each.step()
    assert debug.get_total_counts() == len(traffic.calls), (debug.get_comm_counts(), traffic.calls)
    return traffic.calls


def mixed(route):
    """DTensors cut and replicated beside plain tensors, one of them without a gradient: against whole weights."""
    with routed(route):
        shapes = [(12, 5), (5, 12), (6, 6), (8, 3), (4, 9)]
        ways = ["0", None, "r", None, "0"]
        start = [0.3 * random(i, *shape) for i, shape in enumerate(shapes)]
        plain = [nn.Parameter(w.clone()) for w in start]
        some = [
            nn.Parameter(w.clone() if way is None else cut(w, way, (dist.get_world_size(),)))
            for w, way in zip(start, ways, strict=True)
        ]
        pair = [bort.BortS(params, lr=0.1, momentum=0.9, constraint=0.3) for params in (plain, some)]
        for _ in range(3):
            for p, q, way in zip(plain[:4], some[:4], ways, strict=False):
                p.grad = 0.1 * random(7, *p.shape)
                q.grad = p.grad.clone() if way is None else cut(p.grad, way, (dist.get_world_size(),))
            for each in pair:
                each.step()
    return max((whole(q).detach() - p.detach()).abs().max().item() for p, q in zip(plain, some, strict=True))


def refusal(kind):
    """The message for a weight that is laid out in a way that is not supported."""
    ranks = dist.get_world_size()
    if kind == "partial":
        weight = DTensor.from_local(torch.ones(4, 4), mesh((ranks,)), [Partial()], run_check=False)
        params = [nn.Parameter(weight)]
    elif kind == "kernel":
        params = [nn.Parameter(distribute_tensor(torch.ones(4, 4, 4), mesh((ranks,)), [Shard(2)], src_data_rank=None))]
    elif kind == "elsewhere":
        other = DeviceMesh("cpu", [0])
        weight = DTensor.from_local(torch.ones(4, 4), other, [Shard(0)], run_check=False)
        params = [nn.Parameter(weight)]
        if dist.get_rank() == 0:
            return None
    elif kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        params = FullyShardedDataParallel(
            nn.Linear(4, 4), use_orig_params=True, device_id=torch.device("cpu")
        ).parameters()
    elif kind == "strides":
        weight = DTensor.from_local(
            torch.ones(4 // ranks, 4),
            mesh((ranks,)),
            [_StridedShard(0, split_factor=2)],
            run_check=False,
            shape=(4, 4),
            stride=(4, 1),
        )
        params = [nn.Parameter(weight)]
    elif kind == "order":
        other = DeviceMesh("cpu", list(reversed(range(ranks))))
        params = [nn.Parameter(DTensor.from_local(torch.ones(4 // ranks, 4), other, [Shard(0)], run_check=False))]
    elif kind == "pieces":
        rows = 1 if dist.get_rank() == 0 else 7
        shape = {"shape": (8, 4), "stride": (4, 1)}
        weight = DTensor.from_local(torch.ones(rows, 4), mesh((ranks,)), [Shard(0)], run_check=False, **shape)
        params = [nn.Parameter(weight)]
    elif kind == "zero3":
        params = [nn.Parameter(torch.ones(0))]
        params[0].ds_tensor = torch.ones(4)
    elif kind == "unlike":
        p = nn.Parameter(torch.full((4, 4), 1.0 + dist.get_rank()))
        p.grad = torch.zeros_like(p)
        try:
            bort.BortS([p], lr=0.1, shard=True).step()
        except RuntimeError as error:
            return str(error)
        return None
    try:
        bort.BortS(params, lr=0.1)
    except TypeError as error:
        return str(error)
    return None


def kept_elements(steps):
    """Elements of matrices that the optimizer's plans keep alive after so many steps of the own route."""
    with routed("own"):
        params = [
            nn.Parameter(cut(random(i, 16, 8, dtype=torch.float32), "0", (dist.get_world_size(),))) for i in range(3)
        ]
        each = bort.BortS(params, lr=0.1)
        for _ in range(steps):
            for p in params:
                p.grad = torch.zeros_like(p)
            each.step()
    rounds = each._rounds[0][1]
    return sum(p.numel() for turn in rounds for division in turn.known.values() for _, p in division.rest)


def without_triton():
    """A step by every route where Triton cannot be imported."""
    hidden = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if name.split(".")[0] == "triton" or "bort.optim.kernels._launch" in name
    }
    sys.modules["triton"] = None
    try:
        return [
            shapes_step([(6, 4), (4, 6)], "0", (dist.get_world_size(),), route=route, dtype="float32")
            for route in ("own", "share")
        ]
    finally:
        del sys.modules["triton"]
        sys.modules.update(hidden)


def construction():
    """The collectives of the constructor, with settings that look at every weight."""
    params = [nn.Parameter(cut(random(0, 4, 8), "0", (dist.get_world_size(),)))]
    with Traffic() as traffic:
        bort.BortS(params, lr=0.1, scale="adaptive")
    return traffic.calls
