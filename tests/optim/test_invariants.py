"""What torch promises of its optimizers holds for ours: the things a training script leans on without knowing it."""

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch import nn

from bort import BortS

from .cases import MAIN, assert_same, net, train, weights

EACH = pytest.mark.parametrize(("cls", "options"), MAIN.values(), ids=MAIN)


@EACH
@pytest.mark.parametrize("weights_only", [True, False])
def test_state_dict_round_trip(cls, options, weights_only):
    """Saved in the middle (of an `every` cycle too), loaded into a new optimizer: the same weights from there on."""
    model = net()
    optimizer = cls(model.named_parameters(), constraint=0.3, every=2, **options)
    train(model, optimizer, 3)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=weights_only)
    other = net(seed=1)
    resumed = cls(other.named_parameters(), **options)
    other.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    assert resumed.param_groups[0]["constraint"] == 0.3
    assert resumed.param_groups[0]["param_names"] == [name for name, _ in model.named_parameters()]
    train(model, optimizer, 3, first=3)
    train(other, resumed, 3, first=3)
    assert_same(weights(model), weights(other))


@EACH
def test_a_checkpoint_of_the_plain_optimizer_leaves_our_settings_alone(cls, options):
    model = net()
    base = cls.base(model.parameters(), **options)
    train(model, base, 3)
    matrices, vectors = ([p for p in model.parameters() if (p.ndim == 2) == wanted] for wanted in (True, False))
    base = cls.base([{"params": matrices}, {"params": vectors}], **options)
    train(model, base, 2)
    groups = [{"params": matrices, "constraint": 0.7, "mode": "rows"}, {"params": vectors, "constraint": 0.0}]
    optimizer = cls(groups, every=2, **options)
    optimizer.load_state_dict(base.state_dict())
    assert [(g["constraint"], g["mode"], g["every"]) for g in optimizer.param_groups] == [
        (0.7, "rows", 2),
        (0.0, "full", 2),
    ]
    train(model, optimizer, 2)


@EACH
def test_our_checkpoint_loads_into_the_plain_optimizer(cls, options):
    """Which goes on from our state: its steps are ours without the constraint."""
    model = net()
    optimizer = cls(model.parameters(), **options)
    train(model, optimizer, 2)
    other = copy.deepcopy(model)
    base = cls.base(other.parameters(), **options)
    base.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch would share the tensors
    assert len(base.state) == len(optimizer.state)
    optimizer.param_groups[0]["constraint"] = 0.0
    train(model, optimizer, 2, first=2)
    train(other, base, 2, first=2)
    assert_same(weights(model), weights(other))


@EACH
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_train_on_alike(cls, options, copied):
    model = net()
    optimizer = cls(model.parameters(), constraint=0.3, **options)
    train(model, optimizer, 3)
    other, resumed = copied((model, optimizer))
    assert type(resumed) is cls
    train(model, optimizer, 3, first=3)
    train(other, resumed, 3, first=3)
    assert_same(weights(model), weights(other))
    assert resumed.residuals() == optimizer.residuals()
    resumed.add_param_group({"params": [nn.Parameter(torch.ones(2, 2))]})
    assert resumed.param_groups[-1]["constraint"] == 0.3


@EACH
def test_groups_can_be_added_later(cls, options):
    model = net()
    first, second = model[0], model[2]
    optimizer = cls(first.parameters(), constraint=0.3, **options)
    optimizer.add_param_group({"params": second.parameters(), "constraint": 0.0})
    train(model, optimizer, 2)
    assert [g["constraint"] for g in optimizer.param_groups] == [0.3, 0.0]
    assert list(optimizer.residuals()) == ["0.0"]


@EACH
def test_hooks_run_once_and_in_order(cls, options):
    cls.base(net().parameters(), **options)  # torch wraps the base class's step on its first instance: a trap for us
    model = net()
    optimizer = cls(model.parameters(), **options)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    x = torch.ones(2, 6)

    def closure():
        calls.append("closure")
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert calls == ["pre", "closure", "post"]


@EACH
def test_a_closure_gives_the_same_step_as_plain_code(cls, options):
    """The penalty must meet the closure's fresh gradient, although there is none when step is entered."""
    plain, closed = net(), net()
    first, second = (cls(model.parameters(), constraint=0.3, **options) for model in (plain, closed))
    x = torch.ones(2, 6)
    for _ in range(3):
        first.zero_grad()
        plain(x).square().sum().backward()
        first.step()

        def closure():
            second.zero_grad()
            loss = closed(x).square().sum()
            loss.backward()
            return loss

        second.zero_grad()
        assert second.step(closure).requires_grad
    assert_same(weights(plain), weights(closed))


@EACH
def test_schedulers_drive_the_penalty_too(cls, options):
    model = net()
    optimizer = cls(model.parameters(), **options)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.0)  # lr 0 from the start
    before = weights(model)
    train(model, optimizer, 1)
    scheduler.step()
    assert_same(before, weights(model))


@EACH
def test_tensor_lr(cls, options):
    first, second = net(torch.float64), net(torch.float64)
    train(first, cls(first.parameters(), **options), 5)
    lr = torch.tensor(options["lr"], dtype=torch.float64)
    train(second, cls(second.parameters(), **(options | {"lr": lr})), 5)
    for a, b in zip(weights(first), weights(second), strict=True):
        torch.testing.assert_close(a, b)


def accepting(argument):
    """The main optimizers that have an argument of this name."""
    cases = {name: case for name, case in MAIN.items() if argument in inspect.signature(case[0]).parameters}
    return pytest.mark.parametrize(("cls", "options"), cases.values(), ids=cases)


@pytest.mark.parametrize("decoupled", [False, True])
@accepting("maximize")
def test_maximize_climbs_the_loss_but_not_the_penalty(cls, options, decoupled):
    first, second = (nn.Parameter(torch.randn(5, 3, generator=torch.Generator().manual_seed(0))) for _ in range(2))
    up = cls([first], maximize=True, constraint=0.3, decoupled=decoupled, **options)
    down = cls([second], constraint=0.3, decoupled=decoupled, **options)
    for step in range(3):
        first.grad = torch.full((5, 3), 1.0 + step)
        second.grad = -first.grad
        up.step()
        down.step()
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("mode", ["full", "rows"])
@accepting("differentiable")
def test_differentiable_steps_can_be_differentiated(cls, options, decoupled, mode):
    """gradcheck through two steps, with respect to weight and gradient. (torch detaches SGD's first momentum.)"""

    def after(start, grad):
        p = start.clone()
        p.grad = grad
        settings = options | {"lr": 0.1, "momentum": 0.0} if "momentum" in options else options
        optimizer = cls([p], differentiable=True, constraint=0.3, decoupled=decoupled, mode=mode, **settings)
        optimizer.step()
        optimizer.step()
        return p

    torch.manual_seed(0)
    start = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(after, (start, grad))


@EACH
def test_gradients_are_never_written_to(cls, options):
    model = net()
    optimizer = cls(model.parameters(), constraint=0.3, **options)
    for step in range(3):
        torch.manual_seed(step)
        grads = [torch.randn_like(p) for p in model.parameters()]
        for p, g in zip(model.parameters(), grads, strict=True):
            p.grad = g
        before, versions = [g.clone() for g in grads], [g._version for g in grads]
        optimizer.step()
        assert all(p.grad is g for p, g in zip(model.parameters(), grads, strict=True))
        assert [g._version for g in grads] == versions
        assert_same(grads, before)


@EACH
def test_scalars_frozen_and_gradless_parameters_stay(cls, options):
    scalar = nn.Parameter(torch.tensor(1.0))
    frozen = nn.Parameter(torch.ones(3, 2), requires_grad=False)
    gradless = nn.Parameter(torch.ones(3, 2))
    empty = nn.Parameter(torch.ones(0, 2))
    active = nn.Parameter(torch.ones(3, 2))
    active.grad = torch.ones(3, 2)
    optimizer = cls([scalar, frozen, gradless, empty, active], **options)
    optimizer.step()
    assert scalar.item() == 1
    assert (frozen == 1).all()
    assert (gradless == 1).all()
    assert (active != 1).any()
    assert list(optimizer.residuals()) == ["0.1", "0.2", "0.4"]


@EACH
def test_mixed_dtypes_and_channels_last(cls, options):
    torch.manual_seed(0)
    weight = torch.randn(8, 4, 3, 3)
    params = [
        nn.Parameter(weight.clone()),
        nn.Parameter(weight.to(memory_format=torch.channels_last, copy=True)),
        nn.Parameter(weight.double()),
        nn.Parameter(weight.bfloat16()),
    ]
    optimizer = cls(params, constraint=0.5, **options)
    for _ in range(3):
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert params[1].is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(params[1].detach(), params[0].detach())
    torch.testing.assert_close(params[2].detach().float(), params[0].detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(params[3].detach().float(), params[0].detach(), rtol=0.02, atol=0.02)


@EACH
def test_inference_mode_leaves_the_optimizer_usable(cls, options):
    """Residuals that are asked for there are right, and training goes on as if nobody had asked."""
    asked, silent = net(), net()
    first, second = (cls(model.parameters(), constraint=0.3, **options) for model in (asked, silent))
    for start in (0, 2):
        with torch.inference_mode():
            now = first.residuals()
        assert now == pytest.approx(second.residuals(), rel=1e-6)
        train(asked, first, 2, first=start)
        train(silent, second, 2, first=start)
    assert_same(weights(asked), weights(silent))
    assert first.residuals() == second.residuals() != now


def test_a_step_in_inference_mode_leaves_the_optimizer_usable():
    """Of optimizers without a state: torch's own, made there, could not be written to afterwards."""
    model = net()
    optimizer = BortS(model.parameters(), lr=0.1, constraint=0.3)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    at_first = optimizer.residuals()
    with torch.inference_mode():
        optimizer.step()
    assert optimizer.residuals() == pytest.approx(at_first, rel=1e-6)
    optimizer.step()
    assert optimizer.residuals() != pytest.approx(at_first, rel=1e-6)


@EACH
def test_printing_shows_the_constraint(cls, options):
    text = repr(cls(net().parameters(), constraint=0.125, **options))
    assert text.startswith(f"{cls.__name__} (")
    assert "constraint: 0.125" in text
