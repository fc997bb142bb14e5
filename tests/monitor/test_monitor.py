"""The monitor in loops of one's own: when it measures, where the numbers go, and the pull it counts."""

import math

import pytest
import torch
from torch import nn

import bort
from bort.monitor import Monitor, measure
from tests.optim.cases import batch, net


def train(model, optimizer, steps, *, monitor=None, schedule=None, accumulate=1, first=0):
    """A plain loop; the monitor is called at the top of it, once for each batch."""
    seen = {}
    for index in range(first * accumulate, (first + steps) * accumulate):
        step = index // accumulate
        values = {} if monitor is None else monitor(optimizer, step)
        if values:
            assert step not in seen
            seen[step] = values
        x, y = batch(step=index)
        (nn.functional.cross_entropy(model(x), y) / accumulate).backward()
        if (index + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            if schedule is not None:
                schedule.step()
    return seen


def test_every_so_many_steps_what_the_weights_are_then():
    model = net()
    optimizer = bort.BortS(model.parameters(), lr=0.05, constraint=1.0)
    seen = train(model, optimizer, 7, monitor=Monitor(every=3))
    assert list(seen) == [0, 3, 6]
    again = net()
    other = bort.BortS(again.parameters(), lr=0.05, constraint=1.0)
    assert seen[0]["bort/residual_largest"] == measure(other)["bort/residual_largest"]
    train(again, other, 6)
    expected = measure(other)
    for name in expected.keys() - {"bort/milliseconds"}:
        assert seen[6][name] == expected[name]
    assert seen[6]["bort/residual_largest"] < seen[0]["bort/residual_largest"]


def test_the_pull_is_that_of_constraint_for():
    """constraint_for says which λ has a pull of 5 over this training; the monitor counts it."""
    steps, lr, momentum = 20, 0.02, 0.5
    constraint = bort.constraint_for(5, lr=lr, steps=steps, schedule="cosine", momentum=momentum)
    model = net()
    optimizer = bort.BortS(model.parameters(), lr=lr, momentum=momentum, constraint=constraint)
    cosine = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.5 * (1 + math.cos(math.pi * t / steps)))
    monitor = Monitor(every=5)
    seen = train(model, optimizer, steps, monitor=monitor, schedule=cosine)
    assert seen[0]["bort/pull"] == 0
    assert monitor.record(optimizer, steps)["bort/pull"] == pytest.approx(5, rel=1e-9)


def test_accumulated_gradients_count_as_one_step():
    optimizers = []
    for accumulate in (1, 4):
        model = net()
        optimizer = bort.BortA(model.parameters(), lr=0.01, constraint=0.5)
        monitor = Monitor(every=2)
        seen = train(model, optimizer, 6, monitor=monitor, accumulate=accumulate)
        assert list(seen) == [0, 2, 4]
        assert [seen[step]["bort/pull"] for step in seen] == pytest.approx([0, 0.01, 0.02])
        optimizers.append(monitor.record(optimizer, 6)["bort/pull"])
    assert optimizers == pytest.approx([6 * 0.01 * 0.5] * 2)


def test_groups_warm_up_and_rates_in_tensors():
    """The smallest pull of all groups that have something to constrain."""
    strong, weak, bias = (nn.Parameter(torch.eye(3)) for _ in range(3))
    bias.data = torch.zeros(3)
    optimizer = bort.BortA(
        [
            {"params": [strong], "constraint": 1.0},
            {"params": [weak], "constraint": 0.4, "warmup": 4, "lr": torch.tensor(0.1)},
            {"params": [bias], "constraint": 0.01},
        ],
        lr=0.1,
        weight_decay=0.0,
        foreach=False,
    )
    monitor = Monitor(every=1)
    monitor.watch(optimizer)
    for _ in range(6):
        for group in optimizer.param_groups:
            group["params"][0].grad = torch.zeros_like(group["params"][0])
        optimizer.step()
    expected = 0.4 * 0.1 * (1 / 4 + 2 / 4 + 3 / 4 + 1 + 1 + 1)
    assert monitor(optimizer, 6)["bort/pull"] == pytest.approx(expected, rel=1e-6)


def test_groups_that_are_added_later():
    first, second = nn.Parameter(torch.eye(3)), nn.Parameter(torch.eye(3))
    optimizer = bort.BortS([first], lr=0.1, constraint=1.0)
    monitor = Monitor()
    monitor.watch(optimizer)
    first.grad, second.grad = torch.zeros(3, 3), torch.zeros(3, 3)
    optimizer.step()
    optimizer.add_param_group({"params": [second]})
    optimizer.step()
    assert monitor.record(optimizer, 2)["bort/pull"] == pytest.approx(0.1)


def test_a_coupled_penalty_of_another_optimizer_has_no_pull():
    model = net()
    optimizer = bort.bortify(torch.optim.Adam)(model.parameters(), lr=0.01, decoupled=False)
    seen = train(model, optimizer, 2, monitor=Monitor(every=1))
    assert all("bort/residual_largest" in values and "bort/pull" not in values for values in seen.values())


def test_a_checkpoint_carries_the_pull():
    model = net()
    optimizer = bort.BortS(model.parameters(), lr=0.1, constraint=0.5)
    monitor = Monitor(every=1)
    train(model, optimizer, 3, monitor=monitor)
    saved = monitor.state_dict()
    resumed = Monitor(every=1)
    resumed.load_state_dict(saved)
    train(model, optimizer, 2, monitor=resumed, first=3)
    assert resumed.record(optimizer, 5)["bort/pull"] == pytest.approx(5 * 0.05)
    monitor.load_state_dict(saved)  # also where it is counting already
    assert monitor.record(optimizer, 5)["bort/pull"] == pytest.approx(3 * 0.05)


def test_stopped_it_leaves_the_optimizer_alone():
    model = net()
    optimizer = bort.BortS(model.parameters(), lr=0.1)
    monitor = Monitor()
    monitor.watch(optimizer)
    monitor.watch(optimizer)
    assert len(optimizer._optimizer_step_post_hooks) == 1
    monitor.stop()
    assert not optimizer._optimizer_step_post_hooks


def test_one_optimizer_after_the_other_but_not_two():
    weight = nn.Parameter(torch.eye(3))
    weight.grad = torch.zeros(3, 3)
    first, second = (bort.BortS([weight], lr=0.1, constraint=1.0) for _ in range(2))
    monitor = Monitor(every=1)
    monitor.watch(first)
    first.step()
    with pytest.raises(ValueError, match="watches another BortS"):
        monitor(second, 0)
    monitor.stop()
    monitor.watch(second)
    second.step()
    first.step()
    assert monitor(second, 2)["bort/pull"] == pytest.approx(0.2)
    other = Monitor(every=1, prefix="first")
    assert other(first, 2)["first/pull"] == 0


def test_a_compiled_step_counts():
    model = net()
    optimizer = bort.BortS(model.parameters(), lr=0.1, constraint=0.5)
    monitor = Monitor()
    monitor.watch(optimizer)
    step = torch.compile(optimizer.step, backend="eager")
    for index in range(3):
        x, y = batch(step=index)
        nn.functional.cross_entropy(model(x), y).backward()
        step()
    assert monitor.record(optimizer, 3)["bort/pull"] == pytest.approx(3 * 0.05)


def test_a_model_without_bort():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = Monitor(every=2)
    with pytest.warns(UserWarning, match="SGD is not a Bort optimizer"):
        assert train(model, optimizer, 1, monitor=monitor) == {}
    assert train(model, optimizer, 5, monitor=monitor, first=1) == {}  # said once: a second warning would be an error
    values = monitor(bort.param_groups(model, exclude=()), 6)
    assert "bort/sigma_largest" in values
    assert "bort/pull" not in values


def test_where_the_numbers_go(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    model, called = net(), []
    optimizer = bort.BortS(model.parameters(), lr=0.1)
    with SummaryWriter(str(tmp_path)) as writer:
        written = Monitor(every=2, layers=True, model=model, to=writer)(optimizer, 4)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(written)
    for name, value in written.items():
        (event,) = events.Scalars(name)
        assert (event.step, event.value) == (4, pytest.approx(value, rel=1e-6))  # float32 in the file
    values = Monitor(every=2, to=lambda values, step: called.append((values, step)))(optimizer, 4)
    assert called == [(values, 4)]


@pytest.mark.parametrize("every", [0, -1, True, 2.5])
def test_every_is_a_number_of_steps(every):
    with pytest.raises(ValueError, match="every"):
        Monitor(every=every)


def test_a_place_that_takes_no_numbers_is_refused(tmp_path):
    with pytest.raises(TypeError, match="add_scalar"):
        Monitor(to=tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_inside_accelerate():
    import accelerate

    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()  # a Trainer in the same process has left its own
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    raw = net()
    plain = bort.BortS(raw.parameters(), lr=0.1, constraint=0.3)
    model, optimizer = accelerator.prepare(raw, plain)
    monitor = Monitor(every=2, model=model, layers=True)
    seen = {}
    for index in range(16):
        seen |= {index // 4: values} if (values := monitor(optimizer, index // 4)) else {}
        with accelerator.accumulate(model):
            x, y = batch(step=index)
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
    assert {step: values["bort/pull"] for step, values in seen.items()} == pytest.approx({0: 0.0, 2: 2 * 0.03})
    final = monitor.record(optimizer, 4)
    assert final["bort/pull"] == pytest.approx(4 * 0.03)
    assert final["bort/0.weight/residual"] == measure(plain, model=raw, layers=True)["bort/0.weight/residual"]


@pytest.mark.parametrize("options", [{"momentum": 0.9, "dampening": 0.9}, {"dampening": 0.9}], ids=str)
def test_what_dampening_leaves_of_the_pull(options):
    """Without momentum SGD has no dampening. The distance to 1 shrinks by exp(−2·pull)."""
    weight = nn.Parameter(torch.eye(3, dtype=torch.float64) * 1.001)
    weight.grad = torch.zeros_like(weight)
    optimizer = bort.BortS([weight], lr=0.01, constraint=0.1, **options)
    monitor = Monitor()
    monitor.watch(optimizer)
    for _ in range(1000):
        optimizer.step()
    pull = monitor.record(optimizer, 1000)["bort/pull"]
    assert (weight[0, 0].item() - 1) / 0.001 == pytest.approx(math.exp(-2 * pull), rel=0.05)


@pytest.mark.parametrize("cls", [bort.BortS, bort.BortA])
def test_a_step_that_a_fused_optimizer_skips_has_no_pull(cls):
    model = net()
    optimizer = cls(model, lr=0.1, constraint=0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    monitor = Monitor()
    monitor.watch(optimizer)
    for step in range(5):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 6)).sum() * (torch.inf if step % 2 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert monitor.record(optimizer, 5)["bort/pull"] == pytest.approx(3 * 0.01)
