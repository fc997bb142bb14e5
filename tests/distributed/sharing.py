"""What the processes of a pool run: `shard=True`."""

import torch
import torch.distributed as dist
from torch import nn

import bort
import bort.nets
from tests.distributed.common import cut, random


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
