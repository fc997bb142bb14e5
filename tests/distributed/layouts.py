"""What the processes of a pool run: weights cut in any way, against whole ones."""

import gc
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.placement_types import _StridedShard

import bort
import bort.nets
from bort.optim.sharded import routing
from tests.distributed.common import OPTIMIZERS, Traffic, cut, mesh, random, routed, whole


def shapes_step(
    shapes,
    placements,
    mesh_shape,
    optimizer_name="BortS",
    size=0.3,
    dtype="float64",
    steps=3,
    route=None,
    bucket=None,
    seed=0,
    **settings,
):
    """Weights of any shapes, cut in any way, against the same weights whole: the largest difference after some steps."""
    with routed(route, bucket):
        return _shapes_step(
            shapes, placements, mesh_shape, optimizer_name, size, getattr(torch, dtype), steps, seed, settings
        )


def _shapes_step(shapes, placements, mesh_shape, optimizer_name, size, dtype, steps, seed, settings):
    cls, options = OPTIMIZERS[optimizer_name]
    start = [size * random(seed + i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]
    plain = [nn.Parameter(w.clone()) for w in start]
    sharded = [nn.Parameter(cut(w, placements, mesh_shape)) for w in start]
    pair = [cls(params, **(options | settings)) for params in (plain, sharded)]
    for step in range(steps):
        for i, (p, q) in enumerate(zip(plain, sharded, strict=True)):
            p.grad = 0.1 * random(seed + 100 * step + i, *p.shape, dtype=dtype)
            q.grad = cut(p.grad, placements, mesh_shape)
        before = [q.grad for q in sharded]
        for optimizer in pair:
            optimizer.step()
        assert all(q.grad is grad for q, grad in zip(sharded, before, strict=True)), "the gradient is the user's"
    expected, residuals = (optimizer.residuals() for optimizer in pair)
    assert residuals.keys() == expected.keys()
    # In bfloat16 SGD itself rounds otherwise on a piece than on the whole: torch's vectorised loops differ from their tails.
    tolerance = 2e-3 if dtype is torch.bfloat16 else 1e-5
    for name, value in residuals.items():
        assert abs(value - expected[name]) < tolerance * (1 + abs(expected[name])), (name, residuals, expected)
    scale = max(1.0, *[p.detach().abs().max().item() for p in plain])
    return max((whole(q).detach() - p.detach()).abs().max().item() for p, q in zip(plain, sharded, strict=True)) / scale


def blocks_step(shapes, blocks, placements, scale):
    """Weights that are constrained in blocks of rows: against whole ones."""
    ranks = (dist.get_world_size(),)
    start = [0.3 * random(i, *shape) for i, shape in enumerate(shapes)]
    plain = [nn.Parameter(w.clone()) for w in start]
    sharded = [nn.Parameter(cut(w, placements, ranks)) for w in start]
    for params in (plain, sharded):
        for p in params:
            p.grad = torch.zeros_like(p)
        bort.BortS([{"params": params, "blocks": blocks}], lr=0.1, constraint=0.3, scale=scale).step()
    return max((whole(q).detach() - p.detach()).abs().max().item() for p, q in zip(plain, sharded, strict=True))


def communication(
    shapes, placements, mesh_shape, route=None, steps=2, optimizer_name="BortA", dtype="float32", **settings
):
    """The collectives of one optimizer step: (name, bytes in its buffers) in order, checked against CommDebugMode."""
    with routed(route):
        weights = [
            nn.Parameter(cut(random(0, *s, dtype=getattr(torch, dtype)), placements, mesh_shape)) for s in shapes
        ]
        cls, options = OPTIMIZERS[optimizer_name]
        optimizer = cls(weights, **(options | settings))
        for _ in range(steps):
            for p in weights:
                p.grad = torch.zeros_like(p)
            with CommDebugMode() as debug:
                optimizer.step()
            with Traffic() as traffic:
                optimizer.step()
    assert debug.get_total_counts() == len(traffic.calls), (debug.get_comm_counts(), traffic.calls)
    return traffic.calls


def mixed(route):
    """DTensors cut and replicated beside plain tensors, one of them without a gradient: against whole weights."""
    with routed(route):
        shapes = [(12, 5), (5, 12), (6, 6), (8, 3), (4, 9)]
        ways = ["0", None, "r", None, "0"]
        start = [0.3 * random(i, *shape) for i, shape in enumerate(shapes)]
        plain = [nn.Parameter(w.clone()) for w in start]
        mixture = [
            nn.Parameter(w.clone() if way is None else cut(w, way, (dist.get_world_size(),)))
            for w, way in zip(start, ways, strict=True)
        ]
        pair = [bort.BortS(params, lr=0.1, momentum=0.9, constraint=0.3) for params in (plain, mixture)]
        for _ in range(3):
            for p, q, way in zip(plain[:4], mixture[:4], ways, strict=False):
                p.grad = 0.1 * random(7, *p.shape)
                q.grad = p.grad.clone() if way is None else cut(p.grad, way, (dist.get_world_size(),))
            for optimizer in pair:
                optimizer.step()
    return max((whole(q).detach() - p.detach()).abs().max().item() for p, q in zip(plain, mixture, strict=True))


def overlapped(route, overlap_bytes, dtype="float32", steps=6, **settings):
    """The exchange of the next step, begun when a step has ended, against steps without: whether weights and residuals are
    the same bits, although a weight is written to between steps and the rate changes; and the collectives of each step."""
    shapes, results, traffics = [(12, 5), (5, 12), (7, 7), (20, 3), (3, 20), (12, 5)], [], []
    for size in (0, overlap_bytes):
        params = [
            nn.Parameter(cut(0.3 * random(i, *shape, dtype=getattr(torch, dtype)), "0", (dist.get_world_size(),)))
            for i, shape in enumerate(shapes)
        ]
        optimizer = bort.BortA(params, **({"lr": 0.01, "constraint": 0.3} | settings))
        history = []
        for step in range(steps):
            for i, p in enumerate(params):
                p.grad = cut(random(10 * step + i, *p.shape, dtype=p.dtype), "0", (dist.get_world_size(),))
            if step == 2:
                with torch.no_grad():
                    params[1].mul_(0.5)
            if step == 3:
                with torch.no_grad():
                    params[0].to_local().add_(0.1)
            optimizer.param_groups[0]["lr"] = 0.01 / (1 + step)
            with routed(route), routing(overlap_bytes=size), Traffic() as traffic:
                optimizer.step()
            traffics.append([name for name, _ in traffic.calls])
            history += [whole(p).detach().clone() for p in params]
        results.append((history, optimizer.residuals()))
    (expected, expected_residuals), (history, residuals) = results
    same = all(torch.equal(a, b) for a, b in zip(expected, history, strict=True)) and residuals == expected_residuals
    return same, traffics[:steps], traffics[steps:]


def _partial(ranks):
    return DTensor.from_local(torch.ones(4, 4), mesh((ranks,)), [Partial()], run_check=False)


def _cut_along_the_kernel(ranks):
    return distribute_tensor(torch.ones(4, 4, 4), mesh((ranks,)), [Shard(2)], src_data_rank=None)


def _on_another_mesh(ranks):
    return DTensor.from_local(torch.ones(4, 4), DeviceMesh("cpu", [0]), [Shard(0)], run_check=False)


def _in_strides(ranks):
    whole_shape = {"shape": (4, 4), "stride": (4, 1)}
    placements = [_StridedShard(0, split_factor=2)]
    return DTensor.from_local(torch.ones(4 // ranks, 4), mesh((ranks,)), placements, run_check=False, **whole_shape)


def _ranks_out_of_order(ranks):
    backwards = DeviceMesh("cpu", list(reversed(range(ranks))))
    return DTensor.from_local(torch.ones(4 // ranks, 4), backwards, [Shard(0)], run_check=False)


def _uneven_pieces(ranks):
    rows = 1 if dist.get_rank() == 0 else 7
    whole_shape = {"shape": (8, 4), "stride": (4, 1)}
    return DTensor.from_local(torch.ones(rows, 4), mesh((ranks,)), [Shard(0)], run_check=False, **whole_shape)


def _of_fsdp1(ranks):
    net = FullyShardedDataParallel(nn.Linear(4, 4), use_orig_params=True, device_id=torch.device("cpu"))
    return next(net.parameters())


def _of_zero3(ranks):
    p = nn.Parameter(torch.ones(0))
    p.ds_tensor = torch.ones(4)
    return p


UNSUPPORTED = {
    "partial": _partial,
    "kernel": _cut_along_the_kernel,
    "elsewhere": _on_another_mesh,
    "strides": _in_strides,
    "order": _ranks_out_of_order,
    "pieces": _uneven_pieces,
    "fsdp1": _of_fsdp1,
    "zero3": _of_zero3,
}


def refusal(kind):
    """The message for a weight that is laid out in a way that is not supported; None if an optimizer takes it."""
    weight = UNSUPPORTED[kind](dist.get_world_size())
    try:
        bort.BortS([weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight)], lr=0.1)
    except TypeError as error:
        return str(error)
    return None


def matrices_alive(steps):
    """How many whole matrices are still in memory after so many steps of the own route, beside the parameters."""
    shape = (16, 8)
    with routed("own"):
        params = [
            nn.Parameter(cut(random(i, *shape, dtype=torch.float32), "0", (dist.get_world_size(),))) for i in range(3)
        ]
        optimizer = bort.BortS(params, lr=0.1)
        for _ in range(steps):
            for p in params:
                p.grad = torch.zeros_like(p)
            optimizer.step()
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
    return sum(tuple(t.shape) in (shape, (1, *shape)) for t in tensors if not isinstance(t, DTensor))


def without_triton():
    """A step by every route where Triton cannot be imported."""
    hidden = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if name.split(".")[0] == "triton" or name in ("bort.optim.kernels._launch", "bort.optim.kernels._tiles")
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
