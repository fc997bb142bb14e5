"""What the processes of a pool run. Plain functions; what they return is compared in the tests."""

import contextlib
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import bort
import bort.nets
from bort.optim import _cost

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
def routed(route):
    """All weights to owners ("own"), none of those that need not ("share"), or as the costs say (None)."""
    before = _cost.choose
    if route is not None:
        _cost.choose = lambda matrices, machine: [route == "own" or matrix.special for matrix in matrices]
    try:
        yield
    finally:
        _cost.choose = before


def shapes_step(
    shapes, placements, mesh_shape, optimizer="BortS", size=0.3, dtype="float64", steps=3, route=None, **settings
):
    """Weights of any shapes, cut in any way, against the same weights whole: the largest difference after some steps."""
    with routed(route):
        return _shapes_step(shapes, placements, mesh_shape, optimizer, size, getattr(torch, dtype), steps, settings)


def _shapes_step(shapes, placements, mesh_shape, optimizer, size, dtype, steps, settings):
    cls, options = OPTIMIZERS[optimizer]
    start = [size * random(i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]
    plain = [nn.Parameter(w.clone()) for w in start]
    sharded = [nn.Parameter(cut(w, placements, mesh_shape)) for w in start]
    pair = [cls(params, **(options | settings)) for params in (plain, sharded)]
    for step in range(steps):
        for i, (p, q) in enumerate(zip(plain, sharded, strict=True)):
            p.grad = 0.1 * random(100 * step + i, *p.shape, dtype=dtype)
            q.grad = cut(p.grad, placements, mesh_shape)
        before = [q.grad for q in sharded]
        for each in pair:
            each.step()
        assert all(q.grad is grad for q, grad in zip(sharded, before, strict=True)), "the gradient is the user's"
    found, expected = (each.residuals() for each in pair)
    assert found.keys() == expected.keys()
    for name in found:
        assert abs(found[name] - expected[name]) < 1e-5 + 1e-5 * abs(expected[name]), (name, found, expected)
    scale = max(1.0, *[p.detach().abs().max().item() for p in plain])
    return max((whole(q).detach() - p.detach()).abs().max().item() for p, q in zip(plain, sharded, strict=True)) / scale


class Block(nn.Module):
    """A ViT block: attention and a GELU MLP, both with skips."""

    def __init__(self, width=12, heads=3):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(attended.transpose(1, 2).reshape(n, length, width))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class Tied(nn.Module):
    """Encoder and decoder share one weight."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(10, 10, bias=False), nn.Linear(10, 10)
        self.decode.weight = self.encode.weight

    def forward(self, x):
        return self.decode(torch.tanh(self.encode(x)))


MODELS = {
    "lenet": (lambda: bort.nets.create("lenet"), (1, 28, 28)),
    "acnn": (lambda: bort.nets.create("acnn-small", width=0.04), (1, 28, 28)),
    "vit block": (Block, (5, 12)),
    "grouped": (
        lambda: nn.Sequential(nn.Conv2d(4, 12, 3, groups=2), nn.ReLU(), nn.Conv2d(12, 12, 2, groups=12)),
        (4, 6, 6),
    ),
    "tied": (Tied, (10,)),
}


def model(name, dtype):
    torch.manual_seed(0)
    return MODELS[name][0]().to(dtype)


def batch(name, step, dtype, size=8):
    return random(1000 + step, size, *MODELS[name][1], dtype=dtype)


def loss_of(net, x):
    return net(x).square().flatten(1).mean(dim=1).mean()


def optimizer_of(net, name, **settings):
    cls, options = OPTIMIZERS[name]
    options = dict(options)
    groups = bort.param_groups(net, constraint=options.pop("constraint"), exclude=())
    return cls(groups, **(options | settings))


def alone(name, optimizer, dtype, steps, **settings):
    """One process, all the data."""
    net = model(name, dtype)
    each = optimizer_of(net, optimizer, **settings)
    for step in range(steps):
        each.zero_grad()
        loss_of(net, batch(name, step, dtype)).backward()
        each.step()
    return {key: p.detach() for key, p in net.named_parameters()}, each.residuals()


def _wrap(net, layout):
    """The model under a layout, and which part of the data this process gets: (place, of how many)."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if layout.startswith("ddp"):
        return nn.parallel.DistributedDataParallel(net), (rank, ranks)
    options = {"mesh": mesh((2, ranks // 2)) if layout == "hsdp" else mesh((ranks,))}
    if layout == "fsdp columns":
        options["shard_placement_fn"] = lambda p: Shard(1) if p.ndim > 1 and p.shape[1] % ranks == 0 else Shard(0)
    if layout == "fsdp offload":
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if layout == "fsdp x tp":
        grid = mesh((2, ranks // 2))
        plan = {"qkv": ColwiseParallel(), "fc1": ColwiseParallel(), "fc2": RowwiseParallel()}
        plan["qkv"] = ColwiseParallel(output_layouts=Replicate())
        parallelize_module(net, grid["d1"], plan)
        options["mesh"] = grid["d0"]
        fully_shard(net, **options)
        return net, (grid["d0"].get_local_rank(), 2)
    for child in net.children():
        if next(child.parameters(), None) is not None and "tied" not in layout:
            fully_shard(child, **options)
    fully_shard(net, **options)
    return net, (rank, ranks)


def train(name, optimizer, layout, dtype="float64", steps=10, **settings):
    """Ten steps under a layout against one process: the largest difference of weights, and of residuals."""
    dtype = getattr(torch, dtype)
    expected, expected_residuals = alone(name, optimizer, dtype, steps, **settings)
    net, (place, places) = _wrap(model(name, dtype), layout)
    each = optimizer_of(net, optimizer, shard=layout == "ddp shard", **settings)
    for step in range(steps):
        each.zero_grad()
        x = batch(name, step, dtype)
        loss_of(net, x.chunk(places)[place]).backward()
        each.step()
    found = {key.removeprefix("module."): whole(p).detach() for key, p in net.named_parameters()}
    residuals = each.residuals()
    assert found.keys() == expected.keys()
    off = max((found[key] - expected[key]).abs().max().item() for key in found)
    values = zip(residuals.values(), expected_residuals.values(), strict=True)
    return off, max(abs(a - b) for a, b in values)
