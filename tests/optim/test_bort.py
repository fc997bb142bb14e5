"""What a step does to weights, gradients and residuals. Against the readable reference: test_reference."""

import inspect

import pytest
import schedulefree
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bort import BortA, BortS, bortify, penalty

from .cases import ALL, assert_same, net, train, weights


def parameter(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    p = nn.Parameter(torch.randn(*shape, generator=generator, dtype=dtype) / 2)
    p.grad = torch.randn(*shape, generator=generator, dtype=dtype)
    return p


def equation(w):
    """W WᵀW − W of equ:bort, on the flattened weight."""
    m = w.detach().reshape(w.shape[0], -1)
    return (m @ m.T @ m - m).reshape(w.shape)


@given(st.integers(2, 6), st.integers(1, 6), st.floats(1e-4, 0.3), st.floats(0, 1), st.integers(0, 99))
def test_borts_is_the_papers_equation(m, n, lr, constraint, seed):
    p = parameter(m, n, 2, seed=seed)
    expected = p.detach() - lr * p.grad - lr * constraint * equation(p)
    BortS([p], lr=lr, constraint=constraint).step()
    torch.testing.assert_close(p.detach(), expected, rtol=1e-12, atol=1e-12)


def test_defaults_are_those_of_the_published_code():
    p = parameter(2, 2)
    assert BortS([p]).param_groups[0]["decoupled"] is False
    assert BortA([p]).param_groups[0]["decoupled"] is True
    group = BortS([p]).param_groups[0]
    assert (group["constraint"], group["every"], group["scale"], group["mode"]) == (0.1, 1, 1.0, "full")


@pytest.mark.parametrize("decay", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("cls", [BortS, BortA])
def test_weight_decay_moves_the_fixed_point(cls, decay):
    """σ² = 1 − wd/λ with no gradient from the loss. AdamW multiplies by κ = 1 − α·wd after the penalty: 1 − wd/(κλ)."""
    p = parameter(7, 4)
    kept = 1 - 0.2 * decay if cls is BortA else 1.0
    optimizer = cls([p], lr=0.2, weight_decay=decay, constraint=0.1)
    for _ in range(400):
        p.grad = torch.zeros_like(p)
        optimizer.step()
    squares = torch.linalg.svdvals(p.detach()) ** 2
    torch.testing.assert_close(squares, torch.full_like(squares, 1 - decay / (0.1 * kept)), rtol=0, atol=1e-3)


def test_vectors_and_scalars_are_never_constrained():
    plain, bort = net(), net()
    for model in (plain, bort):
        model.temperature = nn.Parameter(torch.tensor(2.0))
    optimizers = torch.optim.SGD(plain.parameters(), lr=0.1), BortS(bort.parameters(), lr=0.1, constraint=0.1)
    for model, optimizer in zip((plain, bort), optimizers, strict=True):
        (model(torch.ones(3, 6)).square().sum() * model.temperature).backward()
        optimizer.step()
    for (name, a), (_, b) in zip(plain.named_parameters(), bort.named_parameters(), strict=True):
        assert torch.equal(a, b) == (a.ndim < 2), name


@pytest.mark.parametrize("name", ALL)
def test_every_optimizer_learns_and_comes_nearer_to_the_constraint(name):
    cls, options = ALL[name]
    bias = "Muon" not in name  # Muon takes matrices only
    plain, bort = net(bias=bias), net(bias=bias)
    strength = 0.05 / options["lr"]  # the same pull a step for all, whatever lr they want
    base, optimizer = cls.base(plain.parameters(), **options), cls(bort.parameters(), constraint=strength, **options)
    before = sum(optimizer.residuals().values())
    first = train(bort, optimizer, 1)
    last = train(bort, optimizer, 150)
    train(plain, base, 151)
    for trained in (base, optimizer):
        if hasattr(trained, "eval"):
            trained.eval()  # schedule-free: the weights one keeps are the averaged ones
    after = [sum(penalty.residual(p).item() for p in m.parameters() if p.ndim == 2) for m in (plain, bort)]
    assert last < 0.8 * first
    assert after[1] < 0.5 * before
    assert after[1] < 0.5 * after[0]


def implementations():
    """Each optimizer in its plain form and in each of the fast ones it has."""
    for name, (cls, _) in ALL.items():
        yield name, {}
        for fast in ("foreach", "fused"):
            if fast in inspect.signature(cls.base).parameters:
                yield name, {fast: True}


@pytest.mark.parametrize(("name", "fast"), list(implementations()))
def test_constraint_zero_is_the_base_optimizer_to_the_bit(name, fast):
    cls, options = ALL[name]
    bias = "Muon" not in name
    plain, bort = net(bias=bias), net(bias=bias)
    base = cls.base(plain.parameters(), **options, **fast)
    optimizer = cls(bort.parameters(), constraint=0, **options, **fast)
    train(plain, base, 50)
    train(bort, optimizer, 50)
    assert_same(weights(plain), weights(bort))


def test_constrained_names_the_weights_of_all_groups():
    model = net()
    groups = [{"params": model[0].named_parameters()}, {"params": model[2].named_parameters(), "constraint": 0.0}]
    ((name, weight),) = BortS(groups, lr=0.1).constrained()
    assert name == "weight"
    assert weight is model[0].weight
    unnamed = BortS([{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=0.1)
    assert [name for name, _ in unnamed.constrained()] == ["0.0", "1.0"] == list(unnamed.residuals())


def test_names_of_weights_that_longer_names_would_repeat():
    """Of three weights two are called "w", and the third what the first of them would be called then."""
    weights = [parameter(4, 3, seed=seed) for seed in range(3)]
    optimizer = BortS(list(zip(("w", "w", "0.0.w"), weights, strict=True)), lr=0.1)
    found = optimizer.constrained()
    assert [p is w for (_, p), w in zip(found, weights, strict=True)] == [True] * 3
    assert len(optimizer.residuals()) == 3


def test_residuals_are_read_from_the_step():
    model = net(torch.float64)
    optimizer = BortS(model.named_parameters(), lr=0.1)
    now = {name: penalty.residual(p).item() for name, p in model.named_parameters() if p.ndim == 2}
    assert optimizer.residuals() == pytest.approx(now)
    train(model, optimizer, 1)
    assert optimizer.residuals() == pytest.approx(now, rel=1e-6)  # of the weights that the step started from
    now = {name: penalty.residual(p).item() for name, p in model.named_parameters() if p.ndim == 2}
    train(model, optimizer, 1, first=1)
    assert optimizer.residuals() == pytest.approx(now, rel=1e-6)
    assert list(BortS(model.parameters()).residuals()) == ["0.0", "0.2"]
    assert BortS(model.parameters(), constraint=0).residuals() == {}


class Paused(schedulefree.AdamWScheduleFree):
    """Makes no step of its own while ``paused``: only the penalty moves the weights."""

    paused = False

    def step(self, closure=None):
        return None if self.paused else super().step(closure)


def test_schedule_free_keeps_its_average():
    """A decoupled move shifts y and z alike, so that x, the mean behind them, moves with them and not by more."""
    p = parameter(4, 3)
    optimizer = bortify(Paused)([p], lr=0.1, constraint=0.3, betas=(0.9, 0.999))
    optimizer.train()
    optimizer.step()
    y, z = p.detach().clone(), optimizer.state[p]["z"].clone()
    x = (y - 0.1 * z) / 0.9
    move = 0.1 * 0.3 * equation(y)
    optimizer.paused = True
    optimizer.step()
    torch.testing.assert_close(p.detach(), y - move)
    torch.testing.assert_close((p.detach() - 0.1 * optimizer.state[p]["z"]) / 0.9, x - move)


class Polyak(torch.optim.SGD):
    """Steps as long as the loss says: rate loss / |g|²."""

    def step(self, closure=None):
        loss = closure()
        for p in self.param_groups[0]["params"]:
            p.data.sub_(p.grad, alpha=loss.item() / p.grad.square().sum().item())
        return loss


def test_the_base_gets_the_loss_of_the_closure():
    p, calls = parameter(3, 2), []

    def closure():
        calls.append(1)
        p.grad = 2 * p.detach()
        return p.detach().square().sum()

    before = p.detach().clone()
    optimizer = bortify(Polyak)([p], lr=1.0, constraint=0)
    torch.testing.assert_close(optimizer.step(closure), before.square().sum())
    torch.testing.assert_close(p.detach(), before / 2)  # |W|² / |2W|² of 2W
    assert calls == [1]


def test_a_base_that_evaluates_the_closure_twice_is_refused():
    class Twice(torch.optim.SGD):
        def step(self, closure=None):
            closure()
            super().step(closure)

    p = parameter(3, 2)
    grad = p.grad
    with pytest.raises(RuntimeError, match="BortTwice: its base class evaluates the closure several times a step"):
        bortify(Twice)([p], lr=0.1).step(lambda: torch.zeros(()))
    assert p.grad is grad


def test_an_exception_in_the_base_step_gives_the_gradients_back():
    class Broken(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError("broken")

    p = parameter(3, 2)
    grad = p.grad
    with pytest.raises(RuntimeError, match="broken"):
        bortify(Broken)([p], lr=0.1).step()
    assert p.grad is grad


def test_weights_of_one_name_are_told_apart_by_their_groups():
    """Names of two models, of which one even has what would be the other's."""
    first, second, third = (parameter(2, 2, seed=seed) for seed in range(3))
    optimizer = BortS([{"params": [("w", p)]} for p in (first, second)], lr=0.1)
    assert [name for name, _ in optimizer.constrained()] == ["0.w", "1.w"]
    assert optimizer.residuals() == pytest.approx(
        {"0.w": penalty.residual(first).item(), "1.w": penalty.residual(second).item()}
    )
    optimizer.add_param_group({"params": [("0.w", third), ("other", parameter(2, 2))]})
    names = [name for name, _ in optimizer.constrained()]
    assert len(set(names)) == 4
    assert names[1] == "1.w"
    assert names[3] == "other"
    one_group = BortS([("w", first), ("w", second)], lr=0.1)
    assert list(one_group.residuals()) == ["0.0.w", "0.1.w"]
