"""Every optimizer of the package pytorch_optimizer through `bortify`: its own code decides whether the promises hold for
optimizers that we have never seen. A new version that adds or changes one is noticed here."""

import contextlib
import importlib.util
import inspect

import pytest
import torch
import torch.distributed as dist
from torch import nn

from bort import BortS, bortify, penalty

from .cases import batch, weights

pytorch_optimizer = pytest.importorskip("pytorch_optimizer")
pytestmark = pytest.mark.filterwarnings("ignore")  # defaults of theirs that do not fit λ; what counts is asserted

CLASSES = {
    name: cls
    for name, cls in sorted(vars(pytorch_optimizer).items())
    if inspect.isclass(cls)
    and issubclass(cls, torch.optim.Optimizer)
    and cls.__module__.startswith("pytorch_optimizer")
}

# What cannot be made a Bort optimizer, and the words that say why.
CANNOT = {
    **dict.fromkeys(("SAM", "FriendlySAM", "GSAM", "LookSAM", "WSAM"), r"wraps another optimizer \(base_optimizer=…\)"),
    **dict.fromkeys(
        ("Lookahead", "Magma", "OrthoGrad", "PCGrad", "SafeFP16Optimizer", "ScheduleFreeWrapper", "TRAC"),
        r"wraps another optimizer \(optimizer=…\)",
    ),
    "BCOS": "arguments of its own called mode",
    "Conda": "arguments of its own called scale",
    "SCION": "arguments of its own called constraint, scale",
    "SCIONLight": "arguments of its own called constraint, scale",
    **dict.fromkeys(("LOMO", "AdaLOMO"), "^$"),  # NotImplementedError: they change the weights in the backward pass
    "BSAM": "evaluates the closure several times a step",
    "DeMo": "install `einops`",
}
WORKING = [name for name in CLASSES if name not in CANNOT]

# Arguments without which they do not work at all, ours included.
ARGUMENTS = {
    "A2Grad": {"decoupled": False},  # without a learning rate that a decoupled penalty could follow
    "AliG": {"decoupled": False},
    "BSAM": {"num_data": 16},
    "Kron": {"balance_prob": 0.0},  # at random, by numpy's global generator
    "Ranger21": {"num_iterations": 30},
}
TAKE_THE_MODEL = ("AdamMini", "LOMO", "AdaLOMO")
TAKE_TWO_GROUPS = ("AdaGO", "AdaMuon", "DistributedMuon", "Muon", "MuonClip", "NorMuon")
TAKE_MATRICES_ONLY = ("SpectralSphere",)
# Left to themselves they differentiate the gradient in their step, after the weights have been moved: torch refuses that.
TAKE_A_HESSIAN = ("AdaHessian", "SophiaH")

# Where the pull has a part of its effect only, with the reason.
WEAKENED = {
    "A2Grad": "coupled: its steps are short",
    "DAdaptAdaGrad": "computes the weight anew from the first one and a sum of gradients: a move of it counts once",
    "DAdaptAdam": "its steps grow to many times lr, which the penalty goes by",
    "DAdaptAdan": "its steps grow to many times lr, which the penalty goes by",
    "DAdaptSGD": "goes part of the way to the first weight and a sum of gradients in each step",
    "FTRL": "computes the weight anew from sums of gradients: a move of it counts once",
    "MADGRAD": "goes part of the way to the first weight and a sum of gradients in each step",
    "Nero": "sets all rows to norm 1: with more rows than columns they cannot be on the constraint",
    "Ranger21": "goes half of the way back to an earlier weight every few steps",
    "SPlus": "is evaluated with a mean of the weights of all steps",
    "SRMM": "goes part of the way to a mean of earlier weights in each step",
}


def settings(name, **ours):
    """The arguments for the base class, or with settings of ours for its Bort class."""
    arguments = ARGUMENTS.get(name, {})
    return arguments | ours if ours else {key: value for key, value in arguments.items() if key != "decoupled"}


def trained(name, cls, steps, *, pull=None, **arguments):
    """The weights of a small network after some steps, always from the same start and with the same batches.

    ``pull`` is lr·λ.
    """
    torch.manual_seed(0)
    bias = name not in TAKE_MATRICES_ONLY
    model = nn.Sequential(nn.Linear(6, 8, bias=bias), nn.Tanh(), nn.Linear(8, 4, bias=bias))
    params = model if name in TAKE_THE_MODEL else list(model.parameters())
    if name in TAKE_TWO_GROUPS:
        params = [{"params": [p for p in params if (p.ndim > 1) is muon], "use_muon": muon} for muon in (True, False)]
    optimizer = cls(params, **arguments)
    for group in optimizer.param_groups if pull else ():
        group["constraint"] = pull / (group.get("lr") or 0.1)
    if hasattr(optimizer, "train"):
        optimizer.train()
    for step in range(steps):
        x, y = batch(step=step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        more = {"hessian": [torch.ones_like(p) for p in model.parameters()]} if name in TAKE_A_HESSIAN else {}
        torch.manual_seed(step)  # some draw random numbers in their step
        optimizer.step(loss.item, **more)
    if hasattr(optimizer, "eval"):
        optimizer.eval()
    return weights(model)


@contextlib.contextmanager
def processes(name):
    """A group of one process, for those that ask for their rank."""
    if not name.startswith("Distributed"):
        yield
        return
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("name", WORKING)
def test_the_penalty_and_nothing_else(name):
    """λ 0 is the base optimizer to the last bit; λ 0.1 moves the weights."""
    cls = CLASSES[name]
    with processes(name):
        base = trained(name, cls, 3, **settings(name))
        without = trained(name, bortify(cls), 3, **settings(name, constraint=0.0))
        penalised = trained(name, bortify(cls), 3, **settings(name, constraint=0.1))
    assert all(map(torch.equal, base, without))
    assert not any(torch.equal(w, b) for w, b in zip(penalised, base, strict=True) if w.ndim > 1)


@pytest.mark.parametrize("name", WORKING)
def test_weights_come_to_the_constraint(name):
    """Pulled by lr·λ = 0.2, a small singular value grows by 1.2 in a step: 15 steps take most of the residual away."""
    cls = CLASSES[name]
    with processes(name):
        base = trained(name, cls, 15, **settings(name))
        near = trained(name, bortify(cls), 15, pull=0.2, **settings(name, constraint=0.1))
    part = max(penalty.residual(n) / penalty.residual(b) for n, b in zip(near, base, strict=True) if n.ndim > 1)
    assert part < 1
    assert (part > 1 / 3) == (name in WEAKENED), f"residual {part:.2f} of the base optimizer's"


@pytest.mark.parametrize("name", CANNOT)
def test_what_cannot_work_says_so(name):
    if name == "DeMo" and importlib.util.find_spec("einops"):
        pytest.skip("einops is there")
    with pytest.raises((TypeError, RuntimeError, NotImplementedError, ImportError), match=CANNOT[name]):
        trained(name, bortify(CLASSES[name]), 1, **settings(name, constraint=0.1))


def test_the_lists_name_what_is_there():
    assert set(CANNOT) | set(WEAKENED) | set(ARGUMENTS) <= set(CLASSES)


@pytest.mark.parametrize("name", ["SAM", "FriendlySAM", "LookSAM", "Lookahead", "Magma", "OrthoGrad"])
def test_wrappers_take_a_bort_optimizer(name):
    """What the error of `bortify` says to do: λ 0 is the wrapper around SGD, λ 1 comes to the constraint."""

    def wrapped(cls, **ours):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        two_passes = name.endswith("SAM")
        if two_passes:
            optimizer = CLASSES[name](model.parameters(), cls, lr=0.1, **ours)
        else:
            optimizer = CLASSES[name](cls(model.parameters(), lr=0.1, **ours))

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        for step in range(20):
            x, y = batch(step=step)
            torch.manual_seed(step)
            closure()
            optimizer.step(*[closure] * two_passes)
        return weights(model)

    base = wrapped(torch.optim.SGD)
    assert all(map(torch.equal, base, wrapped(BortS, constraint=0.0)))
    for near, far in zip(wrapped(BortS, constraint=1.0)[::2], base[::2], strict=True):
        assert penalty.residual(near) < 0.8 * penalty.residual(far)
