"""What the processes of a pool run. Plain functions; what they return is compared in the tests."""

import contextlib
import functools
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

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
    **settings,
):
    """Weights of any shapes, cut in any way, against the same weights whole: the largest difference after some steps."""
    with routed(route, bucket):
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


def fit(
    net, each, name, dtype, steps, part=(0, 1), *, accumulate=1, clip=None, scaled=False, overflow=None, autocast=False
):
    """The loop of all trainings here, on this process's part of the data."""
    place, places = part
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    for step in range(steps):
        each.zero_grad()
        for turn in range(accumulate):
            last = turn == accumulate - 1
            x = batch(name, accumulate * step + turn, dtype).chunk(places)[place]
            if step == overflow and place == 0:
                x = x * 1e200
            with synchronised(net, last), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                scaler.scale(loss_of(net, x) / accumulate).backward()
        if clip is not None:
            scaler.unscale_(each)
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        scaler.step(each)
        scaler.update()


@contextlib.contextmanager
def synchronised(net, wanted):
    """Gradients are exchanged at the last of the accumulated batches only."""
    if isinstance(net, nn.parallel.DistributedDataParallel) and not wanted:
        with net.no_sync():
            yield
    else:
        if isinstance(net, FSDPModule):
            net.set_requires_gradient_sync(wanted)
        yield


def alone(name, optimizer, dtype, steps, practice, settings):
    """One process, all the data."""
    net = model(name, dtype)
    each = optimizer_of(net, optimizer, **settings)
    fit(net, each, name, dtype, steps, **practice)
    return {key: p.detach() for key, p in net.named_parameters()}, each.residuals()


def wrap(net, layout):
    """The model under a layout, and which part of the data this process gets: (place, of how many)."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if layout.startswith("ddp"):
        return nn.parallel.DistributedDataParallel(net), (rank, ranks)
    options = {"mesh": mesh((2, ranks // 2)) if layout == "hsdp" else mesh((ranks,))}
    if layout == "fsdp columns":
        options["shard_placement_fn"] = lambda p: Shard(1) if p.ndim > 1 and p.shape[1] % ranks == 0 else Shard(0)
    if layout == "fsdp offload":
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if layout == "fsdp bf16":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if layout == "fsdp x tp":
        grid = mesh((2, ranks // 2))
        columns = ColwiseParallel(output_layouts=Replicate())  # the heads are counted before attention
        plan = {"qkv": columns, "fc1": ColwiseParallel(), "fc2": RowwiseParallel()}
        parallelize_module(net, grid["d1"], plan)
        fully_shard(net, mesh=grid["d0"])
        return net, (grid["d0"].get_local_rank(), 2)
    if layout != "fsdp root" and not isinstance(net, Tied):
        for child in net.children():
            if next(child.parameters(), None) is not None:
                fully_shard(child, **options)
    fully_shard(net, **options)
    return net, (rank, ranks)


def train(name, optimizer, layout, dtype="float64", steps=10, practice=(), **settings):
    """Steps under a layout against one process: the largest difference of weights, and of residuals."""
    dtype, practice = getattr(torch, dtype), dict(practice)
    expected, expected_residuals = alone(name, optimizer, dtype, steps, practice, settings)
    net, part = wrap(model(name, dtype), layout)
    each = optimizer_of(net, optimizer, shard=layout == "ddp shard", **settings)
    fit(net, each, name, dtype, steps, part, **practice)
    found = {key.removeprefix("module."): whole(p).detach() for key, p in net.named_parameters()}
    residuals = each.residuals()
    assert found.keys() == expected.keys()
    off = max((found[key] - expected[key]).abs().max().item() for key in found)
    values = zip(residuals.values(), expected_residuals.values(), strict=True)
    return off, max(abs(a - b) for a, b in values)


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


def save(path, name, optimizer, steps, **settings):
    net, part = wrap(model(name, torch.float64), "fsdp")
    each = optimizer_of(net, optimizer, **settings)
    fit(net, each, name, torch.float64, steps, part)
    state = dict(zip(("model", "optimizer"), get_state_dict(net, each), strict=True))
    dcp.save(state, checkpoint_id=path)


def load_and_go_on(path, name, optimizer, steps, layout="fsdp", **settings):
    """The weights one step after a checkpoint, and after as many steps in one process."""
    net = model(name, torch.float64)
    part = (0, 1)
    if layout == "fsdp":
        net, part = wrap(net, layout)
    each = optimizer_of(net, optimizer, **settings)
    state = dict(zip(("model", "optimizer"), get_state_dict(net, each), strict=True))
    dcp.load(state, checkpoint_id=path)
    set_state_dict(net, each, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    x = batch(name, steps, torch.float64)
    each.zero_grad()
    loss_of(net, x.chunk(part[1])[part[0]]).backward()
    each.step()
    expected, residuals = alone(name, optimizer, torch.float64, steps + 1, {}, settings)
    for found, value in zip(each.residuals().values(), residuals.values(), strict=True):
        assert abs(found - value) < 1e-6
    return max((whole(p).detach() - expected[key]).abs().max().item() for key, p in net.named_parameters())


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


def shared(pays, decoupled, steps=6):
    """shard=True with the trial's outcome fixed: the same bits on all ranks as without, and the residuals of all."""
    torch.manual_seed(0)
    shapes = [(8, 5), (5, 8), (16, 3, 3, 3), (6, 6), (7,)]
    start = [torch.randn(shape) * 0.3 for shape in shapes]
    results = []
    for shard in (False, True):
        params = [nn.Parameter(w.clone()) for w in start]
        each = bort.BortS(params, lr=0.1, momentum=0.9, constraint=0.3, shard=shard, decoupled=decoupled)
        for step in range(steps):
            for i, p in enumerate(params):
                p.grad = random(step * 10 + i, *p.shape, dtype=torch.float32) * 0.1
            if shard and pays is not None and step == 1:
                each._shares[0].pays = pays
            each.step()
        results.append(([p.detach() for p in params], each.residuals()))
    outcome = each._shares[0].pays
    (alone_weights, alone_residuals), (weights, residuals) = results
    same = all(torch.equal(a, b) for a, b in zip(alone_weights, weights, strict=True))
    return same, alone_residuals == residuals, outcome


def zero_redundancy():
    """torch's own sharded optimizer states, around a Bort optimizer: against one process."""
    net = nn.parallel.DistributedDataParallel(model("lenet", torch.float64))
    each = ZeroRedundancyOptimizer(net.parameters(), bort.BortS, lr=0.05, momentum=0.9, constraint=0.3)
    other = model("lenet", torch.float64)
    reference = bort.BortS(other.parameters(), lr=0.05, momentum=0.9, constraint=0.3)
    fit(net, each, "lenet", torch.float64, 3, (dist.get_rank(), dist.get_world_size()))
    fit(other, reference, "lenet", torch.float64, 3)
    return max((p - q).abs().max().item() for p, q in zip(net.parameters(), other.parameters(), strict=True))


def gradients_that_differ(shard):
    """Some ranks have no gradient for some weights: the others must not wait, and weights without one stay put."""
    torch.manual_seed(0)
    start = [torch.randn(8, 5) * 0.3, torch.randn(5, 8) * 0.3]
    if shard:
        params = [nn.Parameter(w.clone()) for w in start]
    else:
        params = [nn.Parameter(cut(w, "0", (dist.get_world_size(),))) for w in start]
    each = bort.BortS(params, lr=0.1, constraint=0.3, shard=shard)
    for step in range(6):
        for i, p in enumerate(params):
            p.grad = torch.zeros_like(p) if (step + i + dist.get_rank()) % 2 else None
        if shard and step == 1:
            each._shares[0].pays = True
        each.step()
    return list(each.residuals().values())


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
        if name.split(".")[0] == "triton" or "bort.optim._launch" in name
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


def differentiable_share():
    p = nn.Parameter(torch.ones(4, 4))
    p.grad = torch.zeros_like(p)
    try:
        bort.BortS([p], lr=0.1, shard=True, differentiable=True).step()
    except RuntimeError as error:
        return str(error)
    return None


def replaced_parameter():
    """A parameter that is replaced between steps, on each rank at its own address."""
    params = [nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 6))]
    each = bort.BortS(params, lr=0.1, shard=True)
    for _ in range(6):
        for p in each.param_groups[0]["params"]:
            p.grad = torch.zeros_like(p)
        each.step()
        litter = [torch.empty(16) for _ in range(dist.get_rank() + 1)]
        each.param_groups[0]["params"][0] = nn.Parameter(each.param_groups[0]["params"][0].detach().clone())
        del litter
    return each._shares[0].pays


def construction():
    """The collectives of the constructor, with settings that look at every weight."""
    params = [nn.Parameter(cut(random(0, 4, 8), "0", (dist.get_world_size(),)))]
    with Traffic() as traffic:
        bort.BortS(params, lr=0.1, scale="adaptive")
    return traffic.calls
