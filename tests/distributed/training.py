"""What the processes of a pool run: whole trainings, against one process."""

import contextlib
import functools

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import bort
import bort.nets
from tests.distributed.common import OPTIMIZERS, mesh, random, whole


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
    net,
    optimizer,
    name,
    dtype,
    steps,
    part=(0, 1),
    *,
    accumulate=1,
    clip=None,
    scaled=False,
    overflow=None,
    autocast=False,
):
    """The loop of all trainings here, on this process's part of the data."""
    place, places = part
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    for step in range(steps):
        optimizer.zero_grad()
        for micro_batch in range(accumulate):
            last = micro_batch == accumulate - 1
            x = batch(name, accumulate * step + micro_batch, dtype).chunk(places)[place]
            if step == overflow and place == 0:
                x = x * 1e200
            with synchronised(net, last), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                scaler.scale(loss_of(net, x) / accumulate).backward()
        if clip is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        scaler.step(optimizer)
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


def alone(name, optimizer_name, dtype, steps, practice, settings):
    """One process, all the data."""
    return _alone(name, optimizer_name, dtype, steps, tuple(sorted(practice.items())), tuple(sorted(settings.items())))


@functools.lru_cache(maxsize=8)  # several layouts are compared with the same training
def _alone(name, optimizer_name, dtype, steps, practice, settings):
    net = model(name, dtype)
    optimizer = optimizer_of(net, optimizer_name, **dict(settings))
    fit(net, optimizer, name, dtype, steps, **dict(practice))
    return {key: p.detach() for key, p in net.named_parameters()}, optimizer.residuals()


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


def train(name, optimizer_name, layout, dtype="float64", steps=10, practice=(), **settings):
    """Steps under a layout against one process: the largest difference of weights, and of residuals."""
    dtype, practice = getattr(torch, dtype), dict(practice)
    expected, expected_residuals = alone(name, optimizer_name, dtype, steps, practice, settings)
    net, part = wrap(model(name, dtype), layout)
    optimizer = optimizer_of(net, optimizer_name, shard=layout == "ddp shard", **settings)
    fit(net, optimizer, name, dtype, steps, part, **practice)
    weights = {key.removeprefix("module."): whole(p).detach() for key, p in net.named_parameters()}
    residuals = optimizer.residuals()
    assert weights.keys() == expected.keys()
    off = max((weights[key] - expected[key]).abs().max().item() for key in weights)
    values = zip(residuals.values(), expected_residuals.values(), strict=True)
    return off, max(abs(a - b) for a, b in values)


def constrained_layers(layout):
    """The layers that an optimizer constrains if it is given the module, and those that the module has but for the head."""
    net, _ = wrap(model("lenet", torch.float64), layout)
    optimizer = bort.BortS(net, lr=0.05)
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    layers = [f"{name}.weight" for name, module in net.named_modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    return sorted(optimizer.residuals()), sorted(name for name in layers if "head" not in name)


def save(path, name, optimizer_name, steps, **settings):
    net, part = wrap(model(name, torch.float64), "fsdp")
    optimizer = optimizer_of(net, optimizer_name, **settings)
    fit(net, optimizer, name, torch.float64, steps, part)
    state = dict(zip(("model", "optimizer"), get_state_dict(net, optimizer), strict=True))
    dcp.save(state, checkpoint_id=path)


def load_and_go_on(path, name, optimizer_name, steps, layout="fsdp", **settings):
    """The weights one step after a checkpoint, and after as many steps in one process."""
    net = model(name, torch.float64)
    part = (0, 1)
    if layout == "fsdp":
        net, part = wrap(net, layout)
    optimizer = optimizer_of(net, optimizer_name, **settings)
    state = dict(zip(("model", "optimizer"), get_state_dict(net, optimizer), strict=True))
    dcp.load(state, checkpoint_id=path)
    set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    x = batch(name, steps, torch.float64)
    optimizer.zero_grad()
    loss_of(net, x.chunk(part[1])[part[0]]).backward()
    optimizer.step()
    expected, residuals = alone(name, optimizer_name, torch.float64, steps + 1, {}, settings)
    for residual, value in zip(optimizer.residuals().values(), residuals.values(), strict=True):
        assert abs(residual - value) < 1e-6
    return max((whole(p).detach() - expected[key]).abs().max().item() for key, p in net.named_parameters())


def zero_redundancy():
    """torch's own sharded optimizer states, around a Bort optimizer: against one process."""
    net = nn.parallel.DistributedDataParallel(model("lenet", torch.float64))
    optimizer = ZeroRedundancyOptimizer(net.parameters(), bort.BortS, lr=0.05, momentum=0.9, constraint=0.3)
    other = model("lenet", torch.float64)
    reference = bort.BortS(other.parameters(), lr=0.05, momentum=0.9, constraint=0.3)
    fit(net, optimizer, "lenet", torch.float64, 3, (dist.get_rank(), dist.get_world_size()))
    fit(other, reference, "lenet", torch.float64, 3)
    return max((p - q).abs().max().item() for p, q in zip(net.parameters(), other.parameters(), strict=True))
