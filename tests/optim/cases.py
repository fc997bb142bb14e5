"""The optimizers the tests go through, and small problems to run them on."""

import schedulefree
import timm.optim
import torch
from torch import nn

from bort import BortA, BortL, BortS, bortify

# S, A, L and three others: every invariant of torch's optimizers is tried on these.
MAIN = {
    "S": (BortS, {"lr": 0.02, "momentum": 0.9, "weight_decay": 1e-3}),
    "A": (BortA, {"lr": 0.01}),
    "L": (BortL, {"lr": 0.01}),
    "Adam": (bortify(torch.optim.Adam), {"lr": 0.01}),
    "RMSprop": (bortify(torch.optim.RMSprop), {"lr": 0.002, "momentum": 0.5}),
    "Lion": (bortify(timm.optim.Lion), {"lr": 0.002}),
}
# Everything that the documentation says works.
ALL = MAIN | {
    "NAdam": (bortify(torch.optim.NAdam), {"lr": 0.01}),
    "RAdam": (bortify(torch.optim.RAdam), {"lr": 0.01}),
    "Adagrad": (bortify(torch.optim.Adagrad), {"lr": 0.05}),
    "Adadelta": (bortify(torch.optim.Adadelta), {"lr": 0.5}),
    "Muon": (bortify(torch.optim.Muon), {"lr": 0.01}),
    "timm Muon": (bortify(timm.optim.Muon), {"lr": 0.01}),
    "ScheduleFree A": (bortify(schedulefree.AdamWScheduleFree), {"lr": 0.02}),
    "ScheduleFree S": (bortify(schedulefree.SGDScheduleFree), {"lr": 0.2}),
}


def net(dtype=torch.float32, bias=True, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 10, bias=bias), nn.Tanh(), nn.Linear(10, 4, bias=bias)).to(dtype)


def batch(dtype=torch.float32, step=0):
    """Sixteen points in four classes that can be learned: the quadrant of the first two coordinates."""
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(step))
    return x.to(dtype), (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()


def train(model, optimizer, steps, *, first=0):
    """Plain training, the same batches every time; returns the last loss."""
    if hasattr(optimizer, "train"):
        optimizer.train()
    for step in range(first, first + steps):
        x, y = batch(next(model.parameters()).dtype, step)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def assert_same(first, second):
    """Equal to the last bit."""
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
