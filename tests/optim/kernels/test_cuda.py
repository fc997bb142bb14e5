"""The grouped kernels on a GPU, through the optimizer, against float64. In Triton's interpreter: test_triton."""

from collections import Counter
from functools import partial

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from bort import BortS, bortify, penalty
from bort.optim import _group_penalty
from bort.optim.kernels import Kernels, Tuning

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SHAPES = [
    (8, 8),
    (13, 509),
    (509, 13),
    (127, 129),
    (128, 128),
    (300, 2100),
    (2100, 300),
    (64, 3, 7, 7),
    (96, 16, 3, 3),
    (16, 4, 3, 3, 3),
    (1, 50),
    (50, 1),
    (7, 40),
]


def one_step(start, **options):
    """What one step of penalty alone adds to each weight, divided by its rate: the direction; and the residuals."""
    weights = [nn.Parameter(w.clone(memory_format=torch.preserve_format)) for w in start]
    for p in weights:
        p.grad = torch.zeros_like(p)
    optimizer = BortS(weights, lr=1.0, constraint=1e-3, **options)
    optimizer.step()
    moved = [(w.double() - p.detach().double()) / 1e-3 for w, p in zip(start, weights, strict=True)]
    return moved, list(optimizer.residuals().values())


def relative(direction, exact):
    return ((direction - exact).norm() / exact.norm()).item()


class Still(torch.optim.SGD):
    """Makes no step of its own, but keeps the gradients that it was given: what is left is the penalty."""

    def step(self):
        self.gradients = [p.grad for group in self.param_groups for p in group["params"]]


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_every_shape_against_float64(precision, decoupled):
    torch.manual_seed(0)
    start = [torch.randn(shape, device="cuda") / 8 for shape in SHAPES]
    moved, residuals = one_step(start, precision=precision, decoupled=decoupled)
    for w, direction, residual in zip(start, moved, residuals, strict=True):
        exact = penalty.gradient(w.double())
        assert relative(direction, exact) < 5e-3, tuple(w.shape)
        assert residual == pytest.approx(penalty.residual(w.double()).item(), rel=2e-3)


@pytest.mark.parametrize("decoupled", [False, True])
def test_weights_of_one_shape_in_batches_for_the_kernels_of_large_ones(decoupled, monkeypatch):
    """Beside one that is alone of its shape, in scratch that does not hold all of them."""
    tuning = Tuning(scratch_bytes=24 * 2**20, block_batches=512)
    monkeypatch.setattr(_group_penalty, "Kernels", partial(Kernels, tuning=tuning))
    torch.manual_seed(0)
    shapes = [(1024, 4096), (3072, 1024), (600, 1100)] * 3 + [(700, 1500)]
    start = [torch.randn(shape, device="cuda") / 60 for shape in shapes]
    for w, direction in zip(start, one_step(start, decoupled=decoupled)[0], strict=True):
        assert relative(direction, penalty.gradient(w.double())) < 5e-3, tuple(w.shape)


@pytest.mark.parametrize("seed", range(5))
def test_random_shapes_together(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = [tuple(torch.randint(1, 700, (2,), generator=generator).tolist()) for _ in range(12)]
    start = [torch.randn(shape, device="cuda") / 30 for shape in shapes]
    for w, direction in zip(start, one_step(start)[0], strict=True):
        assert relative(direction, penalty.gradient(w.double())) < 5e-3, tuple(w.shape)


@pytest.mark.parametrize(
    "shape", [(64, 25), (64, 576), (256, 64), (384, 384), (1152, 384), (512, 2048), (1024, 1024), (3072, 1024)]
)
def test_near_the_constraint_the_default_is_within_one_percent(shape):
    """1e-3 per entry off it: rounding must not drown the little that is left of WᵀW − I."""
    torch.manual_seed(0)
    w = nn.init.orthogonal_(torch.empty(shape, device="cuda")) + 1e-3 * torch.randn(shape, device="cuda")
    p = nn.Parameter(w.clone())
    p.grad = torch.zeros_like(p)
    optimizer = bortify(Still)([p], lr=1e-6, constraint=1.0)
    optimizer.step()
    (gradient,) = optimizer.gradients  # 0 + direction: taken from the weight it would be rounded again
    assert relative(gradient.double(), penalty.gradient(w.double())) < 0.01


@pytest.mark.parametrize("shape", [(64, 576), (1536, 384), (512, 512)])
def test_the_default_precision_reaches_the_constraint(shape):
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(shape, device="cuda") / 30)
    optimizer = BortS([p], lr=1.0, constraint=0.2)
    for _ in range(200):
        p.grad = torch.zeros_like(p)
        optimizer.step()
    assert penalty.residual(p.detach().double()) < 2e-3


@pytest.mark.parametrize("decoupled", [False, True])
def test_the_same_bits_every_time(decoupled):
    torch.manual_seed(0)
    start = [torch.randn(shape, device="cuda") / 8 for shape in SHAPES]
    first, second = (one_step(start, decoupled=decoupled)[0] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def device_events(step):
    """What a step makes the device do: how often, by name."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        step()
        torch.cuda.synchronize()
    return Counter({event.key: event.count for event in profiler.key_averages()})


@pytest.mark.parametrize("decoupled", [False, True])
def test_one_launch_each_for_all_weights(decoupled):
    """Wide and tall weights have an apply each. The first step uploads the tables of the weights, and the second, which is
    recorded, that of the gradients."""
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(shape, device="cuda")) for shape in [(64, 64), (100, 30), (32, 16, 3, 3)]]
    weights[2].data = weights[2].data.to(memory_format=torch.channels_last)
    for p in weights:
        p.grad = torch.zeros_like(p)
    optimizer = bortify(Still)(weights, lr=1e-6, decoupled=decoupled)
    for _ in range(2):
        optimizer.step()
    events = device_events(optimizer.step)
    assert {name: events[name] for name in ("stage", "gram", "judge", "apply")} == {
        "stage": 1,
        "gram": 1,
        "judge": 1,
        "apply": 2,
    }
    assert not any("HtoD" in name for name in events), events


def test_weights_that_the_kernels_do_not_take_are_left_to_torch():
    torch.manual_seed(0)
    few_rows, dense = torch.randn(1, 9, device="cuda") / 8, torch.randn(40, 60, device="cuda") / 8
    weights = [nn.Parameter(w) for w in (few_rows, dense[:, ::2], dense.double())]
    assert not weights[1].is_contiguous()
    before = [p.detach().clone().double() for p in weights]
    for p in weights:
        p.grad = torch.zeros_like(p)
    optimizer = BortS(weights, lr=1.0, constraint=1e-3)
    events = device_events(optimizer.step)
    assert not any(events[name] for name in ("stage", "gram", "judge", "apply"))
    for p, w in zip(weights, before, strict=True):
        torch.testing.assert_close(p.detach().double(), w - 1e-3 * penalty.gradient(w), rtol=1e-4, atol=1e-5)


def test_a_weight_that_moves_in_memory_gets_a_new_plan():
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(64, 32, device="cuda") / 8)
    optimizer = BortS([p], lr=1.0, constraint=1e-3)
    for _ in range(2):
        p.data = p.data.clone()
        before = p.detach().double()
        p.grad = torch.zeros_like(p)
        optimizer.step()
        exact = before - 1e-3 * penalty.gradient(before)
        torch.testing.assert_close(p.detach().double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.bfloat16, 2e-2), (torch.float16, 4e-3), (torch.float32, 1e-4), (torch.float64, 1e-10)],
)
def test_dtypes_and_memory_formats(dtype, tolerance, channels_last, decoupled):
    """Also with a gradient that lies in memory otherwise than its weight."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    torch.manual_seed(0)
    start = (torch.randn(32, 16, 3, 3, device="cuda") / 8).to(dtype).to(memory_format=layout)
    grad = torch.randn(32, 16, 3, 3, device="cuda").to(dtype)
    p = nn.Parameter(start.clone(memory_format=torch.preserve_format))
    p.grad = grad
    BortS([p], lr=1e-2, constraint=1.0, decoupled=decoupled).step()
    before = start.double()
    expected = before - 1e-2 * (grad.double() + penalty.gradient(before))
    torch.testing.assert_close(p.detach().double(), expected, rtol=tolerance, atol=tolerance)
    assert p.is_contiguous(memory_format=layout)
    assert p.grad is grad


def test_a_huge_weight_on_the_kernels_comes_down():
    torch.manual_seed(0)
    p = nn.Parameter(1e4 * torch.randn(300, 200, device="cuda"))
    start = p.detach().norm()
    optimizer = BortS([p], lr=1.0, constraint=0.1)
    for _ in range(250):
        p.grad = torch.zeros_like(p)
        optimizer.step()
        assert torch.isfinite(p).all()
        assert p.detach().norm() <= 1.01 * start
    assert penalty.residual(p.detach().double()) < 0.05


def test_precision_leaves_the_programs_own_setting_alone():
    torch.manual_seed(0)
    start = [torch.randn(512, 512, device="cuda") / 16]
    exact = penalty.gradient(start[0].double())
    errors = {}
    for precision in ("highest", "high"):
        (direction,), _ = one_step(start, precision=precision, decoupled=True)
        errors[precision] = relative(direction, exact)
        assert torch.get_float32_matmul_precision() == "highest"
    assert errors["highest"] < errors["high"] < 1e-2


# Each needs more scratch than a batch may take: with a memory accelerator it has kernels of its own. The last two are summed
# up in segments.
LARGE = [(4096, 8448), (8448, 4096), (4100, 8301), (8301, 4100), (5200, 5201), (1200, 40_000), (40_000, 1200)]


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("shape", LARGE)
def test_large_weights(shape, decoupled):
    torch.manual_seed(0)
    start = [torch.randn(shape, device="cuda") / 30]
    (direction,), (residual,) = one_step(start, decoupled=decoupled)
    (again,), _ = one_step(start, decoupled=decoupled)
    exact = penalty.gradient(start[0].double())
    assert relative(direction, exact) < 5e-3
    assert residual == pytest.approx(penalty.residual(start[0].double()).item(), rel=2e-3)
    assert torch.equal(direction, again)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("every", [1, 2])
def test_a_large_weight_in_a_captured_step(every, decoupled):
    """Against steps that count on the host, with a rate that is not rounded to float32."""
    torch.manual_seed(0)
    start = torch.randn(LARGE[0], device="cuda") / 60
    captured, eager = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    for p in (captured, eager):
        p.grad = torch.randn(start.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1)) / 60
    options = {"constraint": 0.1, "momentum": 0.9, "fused": True, "every": every, "decoupled": decoupled}
    optimizers = [
        BortS([p], lr=lr, **options) for p, lr in ((captured, torch.tensor(0.1, device="cuda")), (eager, 0.1))
    ]
    for optimizer in optimizers:
        optimizer.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizers[0].step()
    for _ in range(4):
        graph.replay()
        optimizers[1].step()
        torch.testing.assert_close(captured, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tall", [False, True])
def test_more_elements_than_an_int32_counts(tall):
    if torch.cuda.mem_get_info()[0] < 40 * 2**30:
        pytest.skip("needs 40 GiB of free GPU memory")
    torch.manual_seed(0)
    long = 16_000_000
    p = nn.Parameter(torch.randn((long, 136) if tall else (136, long), device="cuda") * (1.1 / long**0.5))
    assert p.numel() > 2**31
    x = p.detach().T if tall else p.detach()
    defect = sum(part.double() @ part.double().T for part in x.split(500_000, dim=1)) - torch.eye(136, device="cuda")
    places = torch.cat([torch.arange(start, start + 50) for start in (0, 2**31 // 136 - 25, long - 50)]).cuda()
    before = x[:, places].double()
    p.grad = torch.zeros((), device="cuda").expand_as(p)  # no memory for zeros
    optimizer = bortify(Still)([p], lr=1.0, constraint=0.5, decoupled=True)
    optimizer.step()
    moved = before - x[:, places].double()
    assert relative(moved, 0.5 * defect @ before) < 0.01
    (residual,) = optimizer.residuals().values()
    assert residual == pytest.approx((defect.norm() / 136**0.5).item(), rel=0.02)
