"""What the processes of a pool run: `shard=True`."""

import torch
import torch.distributed as dist
from torch import nn

import bort
from bort.optim.sharded import routing
from tests.distributed.common import Traffic, cut, random

TRIAL = 4
"""Steps after which the optimizer has decided whether to share."""


def shared(share, decoupled, steps=TRIAL + 2):
    """shard=True against shard=False, with the outcome of the trial fixed or not (None).

    Whether weights and residuals are the same bits, and the collectives of the last step: an exchange if it was shared.
    """
    torch.manual_seed(0)
    shapes = [(8, 5), (5, 8), (16, 3, 3, 3), (6, 6), (7,)]
    start = [torch.randn(shape) * 0.3 for shape in shapes]
    results = []
    for shard in (False, True):
        params = [nn.Parameter(w.clone()) for w in start]
        optimizer = bort.BortS(params, lr=0.1, momentum=0.9, constraint=0.3, shard=shard, decoupled=decoupled)
        for step in range(steps):
            for i, p in enumerate(params):
                p.grad = random(step * 10 + i, *p.shape, dtype=torch.float32) * 0.1
            with routing(share=share), Traffic() as traffic:
                optimizer.step()
        results.append(([p.detach() for p in params], optimizer.residuals()))
    (expected_weights, expected_residuals), (weights, residuals) = results
    same_weights = all(torch.equal(a, b) for a, b in zip(expected_weights, weights, strict=True))
    return same_weights, expected_residuals == residuals, [name for name, _ in traffic.calls]


def gradients_that_differ(shard, **settings):
    """Some ranks have no gradient for some weights: the others must not wait, and weights without one stay put. After the
    first step each rank goes on from a state of its own, which has nothing of the weights without a gradient."""
    torch.manual_seed(0)
    start = [torch.randn(8, 5) * 0.3, torch.randn(5, 8) * 0.3]
    if shard:
        params = [nn.Parameter(w.clone()) for w in start]
    else:
        params = [nn.Parameter(cut(w, "0", (dist.get_world_size(),))) for w in start]
    optimizer = bort.BortS(params, lr=0.1, constraint=0.3, shard=shard, **settings)
    with routing(share=True):
        for step in range(6):
            for i, p in enumerate(params):
                p.grad = torch.zeros_like(p) if (step + i + dist.get_rank()) % 2 else None
            optimizer.step()
            if step == 0:
                optimizer.load_state_dict(optimizer.state_dict())
    return list(optimizer.residuals().values())


def _refused_step(p, **options):
    p.grad = torch.zeros_like(p)
    try:
        bort.BortS([p], lr=0.1, shard=True, **options).step()
    except RuntimeError as error:
        return str(error)
    return None


def differentiable_share():
    return _refused_step(nn.Parameter(torch.ones(4, 4)), differentiable=True)


def different_values():
    return _refused_step(nn.Parameter(torch.full((4, 4), 1.0 + dist.get_rank())))


def different_shapes():
    return _refused_step(nn.Parameter(torch.ones(4, 4 + dist.get_rank())))


def replaced_parameter():
    """A parameter is replaced after each step, by one at another address on each rank: the collectives of all steps."""
    params = [nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 6))]
    optimizer = bort.BortS(params, lr=0.1, shard=True)
    with Traffic() as traffic:
        for _ in range(TRIAL + 2):
            for p in optimizer.param_groups[0]["params"]:
                p.grad = torch.zeros_like(p)
            optimizer.step()
            litter = [torch.empty(16) for _ in range(dist.get_rank() + 1)]
            old = optimizer.param_groups[0]["params"][0]
            optimizer.param_groups[0]["params"][0] = nn.Parameter(old.detach().clone())
            del litter
    return [name for name, _ in traffic.calls]
