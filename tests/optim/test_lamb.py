"""LAMB: against timm's and the paper's formula; rates and counts on the device; steps that are skipped; checkpoints."""

import copy
import io

import pytest
import timm.optim
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bort import BortL, bortify
from bort.optim import Lamb

SHAPES = [(4, 3), (5,), (2, 3, 2, 2), (), (3, 7)]
BOTH = pytest.mark.parametrize("capturable", [False, True])


def parameters(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in SHAPES]


def groups_of(params):
    return [{"params": params[:2]}, {"params": params[2:4], "weight_decay": 0.0}, {"params": params[4:], "eps": 1e-2}]


def set_gradients(params, step, size=1.0):
    """New ones, of which some are missing."""
    generator = torch.Generator().manual_seed(step)
    for number, p in enumerate(params):
        grad = size * torch.randn(p.shape, generator=generator, dtype=torch.float64)
        p.grad = None if (number + step) % 4 == 0 else grad.to(p.dtype)


def run(optimizer, params, steps=range(20), size=1.0):
    for step in steps:
        for group in optimizer.param_groups:
            rate = 0.02 / (1 + step)
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        set_gradients(params, step, size)
        optimizer.step()
    return [p.detach().clone() for p in params]


def assert_close(first, second, tolerance=1e-12):
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


FLAGS = [
    "bias_correction",
    "grad_averaging",
    "trust_clip",
    "always_adapt",
    "caution",
    "decoupled_decay",
    "corrected_weight_decay",
]


@given(
    flags=st.fixed_dictionaries({name: st.booleans() for name in FLAGS}),
    betas=st.tuples(st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from([0.0, 0.99, 0.999])),
    eps=st.sampled_from([1e-8, 1e-3]),
    decay=st.sampled_from([0.0, 0.01, 0.3]),
    limit=st.sampled_from([None, 0.5, 1.0, 100.0]),
    size=st.sampled_from([1e-3, 1.0, 50.0]),
    capturable=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_it_is_timms(flags, betas, eps, decay, limit, size, capturable):
    """In three groups, with missing gradients and a changing rate."""
    options = flags | {"lr": 0.02, "betas": betas, "eps": eps, "weight_decay": decay, "max_grad_norm": limit}
    ours, theirs = parameters(), parameters()
    results = run(Lamb(groups_of(ours), **options, capturable=capturable), ours, size=size)
    assert_close(results, run(timm.optim.Lamb(groups_of(theirs), **options), theirs, size=size), 1e-10)


def test_it_is_the_papers_algorithm():
    """Algorithm 2 of arXiv:1904.00962, with φ the identity."""
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = nn.Parameter(x.clone())
    optimizer = Lamb([p], lr=0.1, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.05, max_grad_norm=None)
    m, v = torch.zeros_like(x), torch.zeros_like(x)
    for t in range(1, 6):
        g = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(t))
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g**2
        r = (m / (1 - 0.9**t)) / ((v / (1 - 0.99**t)).sqrt() + 1e-6)
        x = x - 0.1 * x.norm() / (r + 0.05 * x).norm() * (r + 0.05 * x)
        p.grad = g
        optimizer.step()
        torch.testing.assert_close(p.detach(), x, rtol=1e-12, atol=1e-12)


@BOTH
@pytest.mark.parametrize("options", [{}, {"decoupled_decay": True, "corrected_weight_decay": True}], ids=str)
def test_a_rate_that_is_a_tensor(options, capturable):
    """The first rate stays known although a schedule writes to the tensor, which all groups share."""
    first, second = parameters(), parameters()
    number = Lamb(groups_of(first), lr=0.02, capturable=capturable, **options)
    tensor = Lamb(groups_of(second), lr=torch.tensor([0.02], dtype=torch.float64), capturable=capturable, **options)
    assert_close(run(number, first), run(tensor, second))


def test_half_precision_is_close():
    wide, narrow = parameters(torch.float32), parameters(torch.bfloat16)
    with torch.no_grad():
        for p, q in zip(wide, narrow, strict=True):
            p.copy_(q)
    results = [run(Lamb(groups_of(params), lr=0.02), params, range(1, 4)) for params in (wide, narrow)]
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b.float(), rtol=2e-2, atol=2e-2)


SKIPPED = [
    {},
    {"caution": True, "max_grad_norm": None},
    {"decoupled_decay": True, "trust_clip": True, "bias_correction": False},
]


@pytest.mark.parametrize("options", SKIPPED, ids=str)
@pytest.mark.parametrize("cls", [Lamb, BortL])
def test_a_skipped_step_leaves_no_trace(cls, options):
    """The first one and a later one, with gradients that are not finite: as if they had not been made."""
    skipping, plain = parameters(torch.float32), parameters(torch.float32)
    first = cls(groups_of(skipping), capturable=True, **options)
    second = cls(groups_of(plain), capturable=True, **options)
    first.found_inf, second.found_inf = torch.zeros(()), torch.zeros(())
    for start in (0, 3):
        before = copy.deepcopy((skipping, first.state_dict()))
        for p in skipping:
            p.grad = torch.full_like(p, torch.nan)
        skipping[0].grad.fill_(torch.inf)
        first.found_inf.fill_(1.0)
        first.step()
        first.found_inf.fill_(0.0)
        assert all(torch.equal(p, q) for p, q in zip(skipping, before[0], strict=True))
        for number, state in before[1]["state"].items():
            after = first.state_dict()["state"][number]
            assert all(torch.equal(value, after[key]) for key, value in state.items())
        assert_close(run(first, skipping, range(start, start + 3)), run(second, plain, range(start, start + 3)), 0)


def test_grad_scaler():
    """On a CPU; on a GPU: test_cuda."""
    results = []
    for scale in (1.0, 2.0**12):
        params = parameters(torch.float32)
        optimizer = Lamb(groups_of(params), lr=0.02, capturable=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10_000)
        for step in range(4):
            optimizer.zero_grad()
            loss = sum((p - 1).square().sum() for p in params)
            scaler.scale(loss * (torch.inf if step == 2 else 1.0)).backward()
            before = [p.detach().clone() for p in params]
            scaler.step(optimizer)
            if step == 2:
                assert_close(before, params, 0)
                scaler = torch.amp.GradScaler(
                    "cpu", init_scale=scale, growth_interval=10_000
                )  # an update would halve it
            else:
                scaler.update()
        assert optimizer.param_groups[0]["step"] == 3
        results.append(params)
    assert_close(*results, 1e-6)


def test_only_a_count_on_the_device_can_be_skipped():
    optimizer = Lamb(parameters(), capturable=False)
    optimizer.found_inf = torch.zeros(())
    with pytest.raises(RuntimeError, match=r"found_inf is set.*capturable=True"):
        optimizer.step()


@pytest.mark.parametrize("options", [*SKIPPED, {"decoupled_decay": True, "corrected_weight_decay": True}], ids=str)
@pytest.mark.parametrize("skips", [False, True])
def test_the_host_reads_nothing(options, skips):
    """On the meta device there is nothing to read: whoever tries gets an error."""
    params = [nn.Parameter(torch.empty(shape, device="meta")) for shape in SHAPES]
    optimizer = Lamb(groups_of(params), capturable=True, **options)
    for group in optimizer.param_groups:
        group["lr"] = torch.empty((), device="meta")
    if skips:
        optimizer.found_inf = torch.empty((), device="meta")
        optimizer.grad_scale = torch.empty((), device="meta")
    for _ in range(2):
        for p in params:
            p.grad = torch.empty_like(p)
        optimizer.step()
    assert optimizer.param_groups[0]["step"].is_meta


@BOTH
@pytest.mark.parametrize("count", [int, float, torch.tensor], ids=["int", "float", "tensor"])
def test_a_checkpoint_of_timms_goes_on(count, capturable):
    """Its count is a whole number in the versions that 0.1.0 worked with, a tensor in later ones."""
    whole, params = parameters(), parameters()
    expected = run(timm.optim.Lamb(groups_of(whole), lr=0.02), whole, range(8))
    before = timm.optim.Lamb(groups_of(params), lr=0.02)
    run(before, params, range(4))
    saved = before.state_dict()
    for group in saved["param_groups"]:
        group["step"] = count(int(group["step"]))
        for later in ("caution", "decoupled_decay", "corrected_weight_decay"):
            del group[later]
    optimizer = Lamb(groups_of(params), lr=0.02, capturable=capturable)
    optimizer.load_state_dict(saved)
    assert_close(run(optimizer, params, range(4, 8)), expected)
    assert isinstance(optimizer.param_groups[0]["step"], torch.Tensor if capturable else int)


@BOTH
def test_timms_goes_on_with_our_checkpoint(capturable):
    whole, params = parameters(), parameters()
    expected = run(Lamb(groups_of(whole), lr=0.02), whole, range(8))
    before = Lamb(groups_of(params), lr=0.02, capturable=capturable)
    run(before, params, range(4))
    after = timm.optim.Lamb(groups_of(params), lr=0.02)
    after.load_state_dict(before.state_dict())
    assert_close(run(after, params, range(4, 8)), expected)


@pytest.mark.parametrize("cls", [Lamb, BortL])
@pytest.mark.parametrize("capturable", [(False, True), (True, False), (True, True)], ids=str)
def test_a_checkpoint_goes_on(cls, capturable):
    """Also between a captured training and one that is not: the count goes along."""
    whole, params = parameters(), parameters()
    expected = run(cls(groups_of(whole), lr=0.02), whole, range(8))
    before = cls(groups_of(params), lr=0.02, capturable=capturable[0])
    run(before, params, range(4))
    file = io.BytesIO()
    torch.save(before.state_dict(), file)
    file.seek(0)
    after = cls(groups_of(params), lr=0.02, capturable=capturable[1])
    after.load_state_dict(torch.load(file))
    for group in after.param_groups:
        group["capturable"] = capturable[1]  # a checkpoint brings its own settings
    assert_close(run(after, params, range(4, 8)), expected, 1e-7)


def test_settings_are_there_from_the_beginning():
    """torch.distributed.checkpoint takes the keys of a group to be the same at all times."""
    params = parameters()
    optimizer = Lamb(params)
    before = set(optimizer.param_groups[0])
    run(optimizer, params, range(2))
    assert set(optimizer.param_groups[0]) == before


def test_a_sparse_gradient_is_refused_before_anything_moves():
    params = parameters()
    set_gradients(params, 1)
    params[4].grad = torch.ones(3, 7).double().to_sparse()
    optimizer = Lamb(params)
    with pytest.raises(RuntimeError, match="Lamb does not support sparse gradients"):
        optimizer.step()
    assert_close(params, parameters(), 0)
    assert optimizer.param_groups[0]["step"] == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"lr": -1.0}, r"lr=-1.0: must be ≥ 0"),
        ({"lr": torch.ones(2)}, r"lr has 2 elements"),
        ({"eps": -1e-8}, r"eps=-1e-08"),
        ({"weight_decay": float("nan")}, r"weight_decay=nan"),
        ({"betas": (0.9, 1.0)}, r"betas\[1\]=1.0: must be ≥ 0 and < 1"),
    ],
)
def test_what_makes_no_sense_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        Lamb(parameters(), **options)


def test_bortl_is_built_on_it():
    assert BortL is bortify(Lamb)
    assert BortL is not bortify(timm.optim.Lamb)
    ours, theirs = parameters(), parameters()
    results = run(BortL(groups_of(ours), lr=0.02, constraint=0.3), ours)
    assert_close(results, run(bortify(timm.optim.Lamb)(groups_of(theirs), lr=0.02, constraint=0.3), theirs))


def test_a_divisor_that_float16_does_not_have():
    """GradScaler's factor is 65536 at first; in float16 that is infinite, and every gradient divided by it 0."""
    results = []
    for scale in (2.0**8, 2.0**16):
        p = nn.Parameter((1.5 * torch.eye(4)).half())
        optimizer = Lamb([p], lr=0.1, capturable=True, weight_decay=0.0, always_adapt=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        scaler.scale((p.float() * 1e-2).sum()).backward()
        scaler.step(optimizer)
        results.append(p.detach())
    assert_close(results[:1], results[1:], 0)
    assert (results[0] - 1.5 * torch.eye(4)).norm() == pytest.approx(0.1 * 3, rel=1e-2)


def test_complex_weights_are_refused_before_anything_moves():
    """Their squares are not those of their size: exp_avg_sq would be another number than that of two real weights."""
    real, p = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, dtype=torch.complex64))
    optimizer = Lamb([("real", real), ("p", p)], lr=0.1)
    real.grad, p.grad = torch.ones_like(real), torch.ones_like(p)
    with pytest.raises(TypeError, match=r"parameter 'p' is complex \(torch.complex64\).*view_as_real"):
        optimizer.step()
    assert torch.equal(real, torch.ones(3))
