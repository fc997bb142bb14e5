"""What only a GPU can show: fused kernels, captured graphs, no host synchronisation, tensor-core precision."""

import pytest
import torch
from torch import nn

from bort import BortA, BortS, bortify, penalty

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

CASES = [
    (BortS, {"lr": 0.05, "momentum": 0.9}),
    (BortA, {"lr": 0.01}),
    (bortify(torch.optim.Adam), {"lr": 0.01, "decoupled": False}),
]


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10)).cuda()


def step_gradients(net, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    for p in net.parameters():
        grad = torch.randn(p.shape, device="cuda", generator=generator) * 0.1
        if p.grad is None:
            p.grad = grad
        else:
            p.grad.copy_(grad)


def run(cls, options, steps=10):
    net = model()
    optimizer = cls(net.parameters(), constraint=0.4, **options)
    for step in range(steps):
        step_gradients(net, step)
        optimizer.step()
    return [p.detach().clone() for p in net.parameters()], optimizer


@pytest.mark.parametrize("fast", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=str)
@pytest.mark.parametrize(("cls", "options"), CASES)
def test_constraint_zero_is_the_base_to_the_bit(cls, options, fast):
    options = {key: value for key, value in options.items() if key != "decoupled"}
    ours, theirs = model(), model()
    first, second = (
        cls(ours.parameters(), constraint=0, **options, **fast),
        cls.base(theirs.parameters(), **options, **fast),
    )
    for step in range(50):
        step_gradients(ours, step)
        step_gradients(theirs, step)
        first.step()
        second.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


@pytest.mark.parametrize(("cls", "options"), CASES)
def test_cuda_equals_cpu(cls, options):
    on_cuda, _ = run(cls, options | {"fused": True, "precision": "highest"})
    net = model().cpu()
    optimizer = cls(net.parameters(), constraint=0.4, **options)
    for step in range(10):
        reference = model()
        step_gradients(reference, step)
        for p, q in zip(net.parameters(), reference.parameters(), strict=True):
            p.grad = q.grad.cpu()
        optimizer.step()
    for a, b in zip(on_cuda, net.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize(("cls", "options"), CASES)
def test_a_step_never_waits_for_the_device(cls, options):
    net = model()
    optimizer = cls(net.parameters(), constraint=0.4, fused=True, **options)
    step_gradients(net, 0)
    optimizer.step()
    try:
        torch.cuda.set_sync_debug_mode("error")
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_guard_works_without_looking():
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(4096, 768, device="cuda"))
    optimizer = BortS([p], lr=1.0, constraint=0.1)
    for _ in range(100):
        p.grad = torch.zeros_like(p)
        optimizer.step()
    sigma = torch.linalg.svdvals(p.detach().double())
    assert sigma.min() > 0.95
    assert sigma.max() < 1.05


@pytest.mark.parametrize(("cls", "options"), CASES)
def test_a_captured_step_replays_right(cls, options):
    """Captured once and replayed with new gradients and a new lr, against the eager optimizer."""
    extra = {"lr": torch.tensor(options["lr"], device="cuda"), "fused": True}
    if cls is not BortS:
        extra["capturable"] = True
    eager, captured = model(), model()
    plain = cls(eager.parameters(), constraint=0.4, **(options | extra))
    graphed = cls(captured.parameters(), constraint=0.4, **(options | extra | {"lr": extra["lr"].clone()}))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for step in range(3):
            step_gradients(captured, step)
            graphed.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graphed.step()
    for step in range(8):
        lr = options["lr"] / (1 + step)
        plain.param_groups[0]["lr"].fill_(lr if step >= 3 else options["lr"])
        step_gradients(eager, step)
        plain.step()
        if step >= 3:
            graphed.param_groups[0]["lr"].fill_(lr)
            step_gradients(captured, step)
            graph.replay()
    for a, b in zip(eager.parameters(), captured.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert graphed.residuals() == pytest.approx(plain.residuals(), rel=1e-3)


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_every_refuses_to_be_captured():
    net = model()
    optimizer = BortS(net.parameters(), lr=0.1, every=2)
    step_gradients(net, 0)
    optimizer.step()
    with pytest.raises(RuntimeError, match="every=2 cannot be captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        optimizer.step()
    torch.cuda.synchronize()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("cls", "options"), CASES)
def test_grad_scaler(cls, options, fused):
    """The same weights as without scaling, and not a bit moved by a step with inf."""
    results = []
    for scale in (1.0, 2.0**14):
        net = model()
        optimizer = cls(net.parameters(), constraint=0.4, fused=fused, **options)
        scaler = torch.amp.GradScaler("cuda", init_scale=scale, growth_interval=10_000)
        for step in range(4):
            optimizer.zero_grad(set_to_none=False)
            x = torch.randn(8, 3, 8, 8, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
            scaler.scale(net(x).square().mean()).backward()
            if step == 2:
                net[0].weight.grad[0, 0, 0, 0] = torch.inf
                before = [p.detach().clone() for p in net.parameters()]
            scaler.step(optimizer)
            if step == 2:
                assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
                scaler = torch.amp.GradScaler("cuda", init_scale=scale, growth_interval=10_000)
                continue
            scaler.update()
        results.append([p.detach().clone() for p in net.parameters()])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


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


def relative(found, exact):
    return ((found - exact).norm() / exact.norm()).item()


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
    lent = []
    with torch.no_grad():
        BortS([p], lr=1e-6, constraint=1.0)._apply_penalties(
            lent
        )  # the lent gradient: no subtraction to round it again
    assert lent
    assert relative(p.grad.double(), penalty.gradient(w.double())) < 0.01


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


def test_the_kernels_are_used_where_they_apply():
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(shape, device="cuda")) for shape in [(64, 64), (1, 9), (32, 16, 3, 3)]]
    weights[2].data = weights[2].data.to(memory_format=torch.channels_last)
    strided = nn.Parameter(torch.randn(40, 60, device="cuda")[:, ::2])
    double = nn.Parameter(torch.randn(40, 60, device="cuda", dtype=torch.float64))
    for p in (*weights, strided, double):
        p.grad = torch.zeros_like(p)
    optimizer = BortS([*weights, strided, double], lr=1e-6)
    optimizer.step()
    (division,) = optimizer._divisions[0].values()
    assert [slot for found, _ in division.plans for slot, _ in found] == [0, 2]
    assert [slot for slot, _ in division.rest] == [1, 3, 4]
    optimizer.step()
    assert list(optimizer._divisions[0].values()) == [division], "the plan is made once"


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
