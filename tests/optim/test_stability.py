"""The stability guard: nothing diverges, and no stable step is changed."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bort import BortA, BortS, bortify
from bort.optim._spec import PenaltySpec
from bort.optim._stability import Stability, limits, spectral_norm


def descend(optimizer_class, weight, steps, lr=1.0, **options):
    """The weight after some steps of penalty alone: the loss has no gradient."""
    p = torch.nn.Parameter(weight.clone())
    optimizer = optimizer_class([p], lr=lr, **options)
    for _ in range(steps):
        p.grad = torch.zeros_like(p)
        optimizer.step()
    return p.detach()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:param group 0")  # lr·λ/(1 − momentum) is exactly 1
@pytest.mark.parametrize(("momentum", "steps"), [(0.0, 100), (0.9, 250)])
def test_a_normal_embedding_comes_to_the_constraint(momentum, steps):
    """N(0, 1) of 1024×192 has σ up to 46; the plain step diverges from σ² > 1 + 2/0.1."""
    torch.manual_seed(0)
    w = descend(BortS, torch.randn(1024, 192), steps, lr=1.0, constraint=0.1, momentum=momentum)
    sigma = torch.linalg.svdvals(w.double())
    assert sigma.min() > 0.95
    assert sigma.max() < 1.05


@pytest.mark.filterwarnings("ignore:param group 0")
@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.floats(-3, 6),
    st.floats(-4, 3),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.booleans(),
    st.sampled_from([1, 3]),
    st.sampled_from(["full", "rows", "columns"]),
    st.sampled_from([1.0, 4.0, "initial"]),
)
@settings(max_examples=60)
def test_no_init_and_no_rate_diverges(m, n, size, rate, momentum, nesterov, every, mode, scale):
    torch.manual_seed(0)
    start = torch.randn(m, n, dtype=torch.float64) * 10.0**size
    options = {
        "momentum": momentum,
        "nesterov": nesterov and momentum > 0,
        "every": every,
        "mode": mode,
        "scale": scale,
    }
    w = descend(BortS, start, 60, constraint=10.0**rate, **options)
    assert torch.isfinite(w).all()
    # bounded by where it came from, and by a few times its target when it came from below
    limit = max(start.norm(), 0.0 if scale == "initial" else (max(m, n) * scale) ** 0.5)
    assert w.norm() <= 4 * limit


@pytest.mark.filterwarnings("ignore:param group 0")
@given(st.sampled_from(["l1-full", "l1-rows", "l1-columns"]), st.floats(-2, 2))
@settings(max_examples=20)
def test_sign_modes_stay_bounded(mode, rate):
    torch.manual_seed(0)
    start = 10 * torch.randn(8, 6, dtype=torch.float64)
    w = descend(BortA, start, 60, constraint=10.0**rate, mode=mode, weight_decay=0.0)
    assert torch.isfinite(w).all()
    assert w.norm() <= 4 * start.norm()


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.001, 0.999), st.floats(0.05, 0.999), st.integers(0, 99))
@settings(max_examples=80)
def test_a_stable_step_is_untouched_to_the_bit(m, n, a, fraction, seed):
    """Largest σ² anywhere below its limit s + 2/a: the factor is exactly one, also where ‖D‖_F says nothing."""
    torch.manual_seed(seed)
    u, sigma, vt = torch.linalg.svd(torch.randn(m, n, dtype=torch.float64), full_matrices=False)
    w = u @ (sigma / sigma.max() * (fraction * (1 + 2 / a)) ** 0.5).diag() @ vt
    d = w.T @ w - torch.eye(n, dtype=w.dtype) if m >= n else w @ w.T - torch.eye(m, dtype=w.dtype)
    factor = Stability(a).damping(d.unsqueeze(0), 1.0)
    assert factor is None or torch.equal(factor, torch.ones_like(factor))


def test_a_step_near_its_limit_is_untouched_to_the_bit():
    """Guarded and unguarded, bit for bit, near the limit where the cheap bound ‖D‖_F does not decide."""
    torch.manual_seed(0)
    w = torch.randn(64, 48) * 0.25
    d = w.T @ w - torch.eye(48)
    a = 1.9 / torch.linalg.matrix_norm(d, 2).item()
    assert a * torch.linalg.vector_norm(d) > 2
    factor = Stability(a).damping(d.unsqueeze(0), 1.0)
    assert factor is not None
    assert torch.equal(d * factor[0], d)
    assert not torch.equal(d, d * Stability(a * 1.2).damping(d.unsqueeze(0), 1.0)[0])


@given(st.integers(2, 60), st.integers(0, 99))
def test_the_estimate_is_below_the_norm_and_near_it(k, seed):
    torch.manual_seed(seed)
    d = torch.randn(3, k, k, dtype=torch.float64)
    d = d + d.mT
    exact = torch.linalg.matrix_norm(d, 2)
    estimate = spectral_norm(d).flatten()
    assert (estimate <= exact * (1 + 1e-12)).all()
    assert (estimate >= 0.6 * exact).all()


@given(st.integers(1, 7), st.floats(0, 0.1), st.sampled_from([1.0, 1e15, 1e-15]), st.booleans(), st.integers(0, 99))
def test_of_small_matrices_the_estimate_is_close(k, gap, size, single, seed):
    """Also where the other singular values are nearly as large as the first, and where squares would overflow."""
    torch.manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(4, k, k, dtype=torch.float64))
    eigenvalues = torch.full((k,), 1 - gap, dtype=torch.float64)
    eigenvalues[0] = -1.0
    d = (size * (q * eigenvalues) @ q.mT).to(torch.float32 if single else torch.float64)
    estimate = spectral_norm(d).flatten().double() / size
    assert (estimate <= 1 + 1e-5).all()
    assert (estimate >= (1 - 1e-6 if k == 1 else 0.985)).all()
    assert not spectral_norm(torch.zeros(2, k, k)).any()


def test_what_a_group_is_judged_by():
    """a = α·λ·every; with momentum, α is the largest that is known to come, and μᵏ is what k steps carry on."""
    group = {"lr": 0.1, "initial_lr": 0.2, "max_lr": 0.3}
    assert Stability.of(PenaltySpec(0.5, every=2), group, 0.4) == Stability(0.1 * 1.0)
    coupled = Stability.of(PenaltySpec(0.5, every=2, momentum=0.9, nesterov=True), group, 0.4)
    assert coupled.rate == pytest.approx(0.4 * 1.0 * (1 - 0.81) / (1 - 0.9))
    assert coupled.limits == limits(0.9**2, nesterov=True)
    assert Stability.of(PenaltySpec(0.5, momentum=0.9), group, None).rate == pytest.approx(0.3 * 0.5)
    on_tensor = Stability.of(PenaltySpec(0.5, momentum=0.9), {"lr": torch.tensor(0.1)}, 0.4)
    assert on_tensor.rate.item() == pytest.approx(0.4 * 0.5)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_limit_with_momentum_is_on_the_safe_side(nesterov):
    """σ alone, in plain Python: from rest, everything up to a·(σ² − s) = 2/(1 + 1.6μ) comes down."""
    for momentum in (0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99):
        limit = limits(momentum, nesterov=nesterov).step
        for fraction in (0.5, 0.8, 0.9, 0.97, 1.0):
            a, velocity = 0.01, 0.0
            sigma = start = (1 + fraction * limit / a) ** 0.5
            for _ in range(2000):
                force = a * (sigma**3 - sigma)
                velocity = momentum * velocity + force
                sigma -= force + momentum * velocity if nesterov else velocity
                assert abs(sigma) < 2 * start, (momentum, fraction)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler")
@pytest.mark.parametrize("warmup", [1, 10, 100])
def test_a_warm_up_does_not_release_what_momentum_has_stored(warmup):
    """At lr ≈ 0 the penalty enters the momentum at full length; the guard judges it by the lr that is to come."""
    torch.manual_seed(0)
    p = torch.nn.Parameter(torch.randn(500, 64))
    start = p.norm().item()
    optimizer = BortS([p], lr=0.1, momentum=0.9, constraint=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / warmup))
    for _ in range(200):
        p.grad = torch.zeros_like(p)
        optimizer.step()
        scheduler.step()
        assert p.norm().item() <= 1.5 * start


@pytest.mark.filterwarnings("ignore:param group 0")
@pytest.mark.parametrize(("momentum", "every"), [(0.9, 4), (0.95, 10), (0.99, 10)])
def test_momentum_carries_a_kth_step_penalty_on(momentum, every):
    torch.manual_seed(0)
    start = 3 * torch.randn(20, 10, dtype=torch.float64)
    p = torch.nn.Parameter(start.clone())
    optimizer = BortS([p], lr=0.1, momentum=momentum, every=every, constraint=5e-3)
    for _ in range(300):
        p.grad = torch.zeros_like(p)
        optimizer.step()
        assert torch.linalg.matrix_norm(p.detach(), 2) <= 1.5 * torch.linalg.matrix_norm(start, 2)


@pytest.mark.filterwarnings("ignore:param group 0")
@pytest.mark.parametrize("mode", ["full", "rows"])
@pytest.mark.parametrize("shape", [(10, 40), (40, 10)])
def test_an_adaptive_target_stays_bounded(mode, shape):
    torch.manual_seed(0)
    for size in (0.1, 10.0, 663.0):
        start = size * torch.randn(*shape)
        w = descend(BortS, start, 300, constraint=1e-3, mode=mode, scale="adaptive")
        assert w.norm() <= 1.1 * start.norm()


@pytest.mark.parametrize("size", [1e6, 1e12, 1e16])
def test_huge_weights_do_not_overflow(size):
    torch.manual_seed(0)
    start = size * torch.randn(30, 20)
    w = descend(BortS, start, 5, constraint=0.1)
    assert torch.isfinite(w).all()
    assert w.norm() < start.norm()


def test_half_precision_weights_do_not_overflow():
    torch.manual_seed(0)
    w = descend(BortS, torch.randn(5000, 32).half(), 5, lr=1e-5, decoupled=True)  # WWᵀW is 70 times the largest half
    assert torch.isfinite(w).all()


def test_other_optimizers_are_guarded_too():
    torch.manual_seed(0)
    for base in (torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad):
        w = descend(bortify(base), 50 * torch.randn(20, 10), 200, lr=1.0, constraint=0.1)
        assert (torch.linalg.svdvals(w) - 1).abs().max() < 0.05


@pytest.mark.filterwarnings("ignore:param group 0")
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.5, 0.9, 0.99])
def test_with_momentum_no_singular_value_rises_more_than_fourfold(momentum, nesterov):
    """From rest, over all strengths and starts. In version 0.1.0 some rose 30-fold."""
    generator = torch.Generator().manual_seed(0)
    for rate in torch.logspace(-3, 1.5, 6).tolist():
        for size in (0.05, 1.0, 20.0):
            start = size * torch.randn(4, 3, dtype=torch.float64, generator=generator)
            p = torch.nn.Parameter(start.clone())
            p.grad = torch.zeros_like(p)
            optimizer = BortS([p], lr=1.0, constraint=rate, momentum=momentum, nesterov=nesterov)
            limit = 4 * max(1.0, torch.linalg.matrix_norm(start, 2).item())
            for _ in range(150):
                optimizer.step()
                assert torch.linalg.matrix_norm(p.detach(), 2) <= limit, (rate, size)


FULL = {"constraint": 0.5}


def stepped(optimizer, p):
    p.grad = torch.zeros_like(p)
    optimizer.step()
    return p.detach().clone()


def start(rate=0.01):
    p = torch.nn.Parameter(torch.tensor([[1.2, 0.0], [0.0, 1.0]]))
    return p, {"params": [p], "lr": rate}


@pytest.mark.parametrize("default", [0.01, 10.0, torch.tensor(10.0)], ids=str)
@pytest.mark.parametrize("later", [False, True])
def test_a_group_is_judged_by_its_own_rate(default, later):
    """The rate of the optimizer is none that this group ever has."""
    p, group = start()
    other = {"params": [torch.nn.Parameter(torch.zeros(3))], "constraint": 0.0}
    optimizer = BortS([other] if later else [other, group], lr=default, momentum=0.9, **FULL)
    if later:
        optimizer.add_param_group(group)
    assert stepped(optimizer, p)[0, 0] == pytest.approx(1.2 - 0.01 * 0.5 * (1.2**3 - 1.2), rel=1e-6)


@pytest.mark.filterwarnings("ignore:param group 0")
@pytest.mark.parametrize("rate", [10.0, torch.tensor(10.0)], ids=str)
@pytest.mark.parametrize("again", [lambda o: o, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_the_first_rate_of_a_group_stays_known(rate, again):
    """It may come back: a schedule of one's own lowers the rate for a warm-up. Also after a copy and after a checkpoint."""

    def lowered(optimizer):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 if not isinstance(group["lr"], torch.Tensor) else group["lr"].fill_(0.01)
        return optimizer

    p, group = start(rate.clone() if isinstance(rate, torch.Tensor) else rate)
    optimizer = again(lowered(BortS([group], lr=0.01, momentum=0.9, **FULL)))
    loaded = BortS([start(10.0)[1]], lr=0.01, momentum=0.9, **FULL)
    loaded.load_state_dict(optimizer.state_dict())
    for each in (optimizer, loaded):
        (p,) = each.param_groups[0]["params"]
        move = 1.2 - stepped(each, p)[0, 0].item()
        assert 0 < move < 0.5 * 0.01 * 0.5 * (1.2**3 - 1.2)  # shortened


@pytest.mark.filterwarnings("ignore:param group 0")
@pytest.mark.parametrize("adds_another", [False, True])
def test_a_group_that_is_taken_out_leaves_no_rate_to_the_next(adds_another):
    p, group = start(0.01)
    optimizer = BortS([start(10.0)[1], group], lr=0.01, momentum=0.9, **FULL)
    optimizer.param_groups.pop(0)
    if adds_another:
        optimizer.add_param_group(start(0.01)[1])
    assert stepped(optimizer, p)[0, 0] == pytest.approx(1.2 - 0.01 * 0.5 * (1.2**3 - 1.2), rel=1e-6)


def test_an_optimizer_without_a_rate():
    """transformers' Adafactor has lr=None and finds its own rates. The complaint about decoupled=True names the way out."""

    class Own(torch.optim.Optimizer):
        def __init__(self, params, lr=None):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                p.sub_(p.grad, alpha=0.1)

    p, group = start(None)
    with pytest.raises(ValueError, match="use decoupled=False"):
        bortify(Own)([dict(group)])
    optimizer = bortify(Own)([group], decoupled=False, **FULL)
    assert stepped(optimizer, p)[0, 0] == pytest.approx(1.2 - 0.1 * 0.5 * (1.2**3 - 1.2), rel=1e-6)
