"""``every`` and ``warmup`` where steps are counted on the device, which a CUDA graph needs: on a CPU, against counting on the
host. Captured on a GPU: test_cuda."""

import pytest
import torch
from torch import nn

from bort import BortA, BortL, BortS, bortify, penalty
from bort.optim import _schedule

EVERY = pytest.mark.parametrize("every", [1, 3])
WARMUP = pytest.mark.parametrize("warmup", [0, 4])
RATES = [0.02, 0.0, 0.05, 0.04, 0.03, 0.0, 0.02, 0.01, 0.05]


def weights(size=0.5):
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 4), (4, 6), (3, 2, 2), (5,)]
    return [nn.Parameter(size * torch.randn(shape, dtype=torch.float64, generator=generator)) for shape in shapes]


def train(optimizer, params, rates=RATES, found_inf=None):
    """A step for each rate; those whose number is in ``found_inf`` are skipped by the device. Returns the residuals too."""
    residuals = []
    for step, rate in enumerate(rates):
        generator = torch.Generator().manual_seed(step)
        for p in params:
            p.grad = torch.randn(p.shape, dtype=torch.float64, generator=generator) / 10
        lr = optimizer.param_groups[0]["lr"]
        if isinstance(lr, torch.Tensor):
            lr.fill_(rate)
        else:
            optimizer.param_groups[0]["lr"] = rate
        if found_inf is not None:
            optimizer.found_inf = torch.tensor(float(step in found_inf))
            if step in found_inf:
                params[0].grad.fill_(torch.nan)
        optimizer.step()
        residuals.append(list(optimizer.residuals().values()))
    return [p.detach() for p in params], residuals


def assert_same(first, second):
    for a, b in zip(first[0], second[0], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(torch.tensor(first[1]), torch.tensor(second[1]), rtol=1e-5, atol=1e-7)


@pytest.fixture
def cpu_is_a_device(monkeypatch):
    """Take a rate in the memory of the CPU for one that the host must not read."""
    monkeypatch.setattr(_schedule, "_is_on_device", lambda lr: isinstance(lr, torch.Tensor))


CASES = {
    "S": (BortS, {"momentum": 0.9, "foreach": False}),
    "S decoupled": (BortS, {"momentum": 0.9, "decoupled": True, "foreach": False}),
    "A": (BortA, {"foreach": False}),
    "Adam coupled": (bortify(torch.optim.Adam), {"decoupled": False, "foreach": False}),
    "L": (BortL, {}),
    "L coupled, rows": (BortL, {"decoupled": False, "mode": "rows"}),
}


@EVERY
@WARMUP
@pytest.mark.usefixtures("cpu_is_a_device")
@pytest.mark.parametrize(("cls", "options"), CASES.values(), ids=CASES)
def test_counted_on_the_device(cls, options, every, warmup):
    """The same weights and residuals at every step as with numbers. Rates of 0 count no step and leave no penalty behind."""
    options = options | {"constraint": 0.2, "every": every, "warmup": warmup}
    on_host, on_device = weights(), weights()
    number, tensor = (
        cls(on_host, lr=0.05, **options),
        cls(on_device, lr=torch.tensor(0.05, dtype=torch.float64), **options),
    )
    assert_same(train(tensor, on_device), train(number, on_host))
    if every > 1 or warmup:
        assert float(tensor.param_groups[0]["penalty_step"]) == number.param_groups[0]["penalty_step"] == 7
        assert isinstance(tensor.param_groups[0]["penalty_step"], torch.Tensor)


@EVERY
@WARMUP
@pytest.mark.parametrize("decoupled", [False, True])
def test_a_skipped_step_counts_as_none(every, warmup, decoupled):
    options = {"constraint": 0.4, "every": every, "warmup": warmup, "decoupled": decoupled, "capturable": True}
    skipping, plain = weights(), weights()
    rates = [0.05] * 8
    ours = train(BortL(skipping, **options), skipping, rates, found_inf={0, 5})
    gradients = [step for step in range(8) if step not in (0, 5)]
    optimizer, residuals = BortL(plain, **options), []
    for step in gradients:
        generator = torch.Generator().manual_seed(step)
        for p in plain:
            p.grad = torch.randn(p.shape, dtype=torch.float64, generator=generator) / 10
        optimizer.param_groups[0]["lr"] = 0.05
        optimizer.step()
        residuals.append(list(optimizer.residuals().values()))
    assert_same((ours[0], [ours[1][step] for step in gradients]), ([p.detach() for p in plain], residuals))


@EVERY
@WARMUP
@pytest.mark.parametrize(("cls", "options"), CASES.values(), ids=CASES)
def test_the_host_reads_nothing(monkeypatch, cls, options, every, warmup):
    """On the meta device there is nothing to read: whoever tries gets an error. Of torch's optimizers only the penalty is
    computed: those that are not fused read their rate."""
    if cls is not BortL:
        monkeypatch.setattr(cls, "_base_step", lambda self: None)
    params = [nn.Parameter(torch.empty(shape, device="meta")) for shape in ((6, 4), (4, 6), (5,))]
    options = options | ({"capturable": True} if cls is BortL else {})
    optimizer = cls(params, lr=0.1, every=every, warmup=warmup, **options)
    optimizer.param_groups[0]["lr"] = torch.empty((), device="meta")
    for _ in range(4):
        for p in params:
            p.grad = torch.empty_like(p)
        optimizer.step()
    assert (every == 1 and not warmup) or optimizer.param_groups[0]["penalty_step"].is_meta


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_guard_knows_the_first_rate(momentum):
    """A schedule writes to the tensor that the optimizer was made with; what momentum has stored moves the weight at a higher
    rate later. On weights far too large, where the guard acts."""
    rates = [1e-4, 1e-3, 1e-2, 0.1, 0.1, 0.1, 0.1]
    first, second = weights(30.0), weights(30.0)
    options = {"momentum": momentum, "constraint": 0.1, "foreach": False}
    by_number = train(BortS(first, lr=0.1, **options), first, rates)
    by_tensor = train(BortS(second, lr=torch.tensor(0.1, dtype=torch.float64), **options), second, rates)
    assert_same(by_tensor, by_number)


def test_a_count_goes_from_the_device_to_the_host_and_back():
    """A training that was captured goes on eagerly, and the other way round."""
    whole, cut = weights(), weights()
    options = {"lr": 0.05, "constraint": 0.4, "every": 3, "warmup": 8}
    expected, _ = train(BortL(whole, **options), whole, [0.05] * 9)
    saved = None
    for start, capturable in ((0, True), (3, False), (6, True)):
        optimizer = BortL(cut, capturable=capturable, **options)
        if saved is not None:
            optimizer.load_state_dict(saved)
            optimizer.param_groups[0]["capturable"] = capturable
        for step in range(start, start + 3):
            generator = torch.Generator().manual_seed(step)
            for p in cut:
                p.grad = torch.randn(p.shape, dtype=torch.float64, generator=generator) / 10
            optimizer.step()
        saved = optimizer.state_dict()
    for p, q in zip(cut, expected, strict=True):
        torch.testing.assert_close(p.detach(), q, rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("cpu_is_a_device")
def test_a_direction_that_is_not_finite_stays_out_of_steps_without_one():
    """W WᵀW overflows; a step without a penalty is SGD's all the same."""
    p = nn.Parameter(torch.full((4, 4), 1e20))
    p.grad = torch.ones_like(p)
    optimizer = BortS([p], lr=torch.tensor(0.1), every=3, foreach=False)
    optimizer.step()
    assert not torch.isfinite(penalty.gradient(p.detach())).all()
    assert torch.isfinite(p).all()


@pytest.mark.usefixtures("cpu_is_a_device")
def test_weights_far_from_the_constraint_are_named_at_the_first_penalty():
    p = nn.Parameter(torch.randn(20, 20) * 4)
    p.grad = torch.zeros_like(p)
    optimizer = BortS([("far", p)], lr=torch.tensor(1e-6), every=3, foreach=False)
    optimizer.step()
    optimizer.step()
    with pytest.warns(UserWarning, match="'far' is far from its constraint"):
        optimizer.step()
