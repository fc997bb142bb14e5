"""What only a GPU can show: fused kernels, captured graphs, no host synchronisation, tensor-core precision."""

import pytest
import torch
from torch import nn

from bort import BortA, BortL, BortS, bortify

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

CASES = [
    (BortS, {"lr": 0.05, "momentum": 0.9}),
    (BortA, {"lr": 0.01}),
    (bortify(torch.optim.Adam), {"lr": 0.01, "decoupled": False}),
]
LAMB = (BortL, {"lr": 0.01})


def without_waiting(cls):
    """What makes an optimizer one that never reads from the device."""
    return {"capturable": True} if cls is BortL else {"fused": True}


def for_capture(cls):
    return without_waiting(cls) | ({} if cls is BortS else {"capturable": True})


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


@pytest.mark.parametrize(("cls", "options"), [*CASES, LAMB])
def test_cuda_equals_cpu(cls, options):
    on_cuda, _ = run(cls, options | without_waiting(cls) | {"precision": "highest"})
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
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("warmup", [0, 4])
@pytest.mark.parametrize(("cls", "options"), [*CASES, LAMB])
def test_a_step_never_waits_for_the_device(cls, options, warmup, every, on_device):
    """After the first penalty, whose residuals are looked at once; the rate and found_inf on the device or not there."""
    net = model()
    settings = options | for_capture(cls) | {"warmup": warmup, "every": every}
    if on_device:
        settings["lr"] = torch.tensor(options["lr"], device="cuda")
    optimizer = cls(net.parameters(), constraint=0.1, **settings)
    if on_device:
        optimizer.found_inf, optimizer.grad_scale = torch.zeros((), device="cuda"), None
    step_gradients(net, 0)
    for _ in range(every):
        optimizer.step()
    try:
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(every):
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


def captured(net, optimizer, gradients):
    """A graph of one step, after eager ones with these gradients."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for seed in gradients:
            step_gradients(net, seed)
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    return graph


@pytest.mark.parametrize("precision", ["high", "highest"], ids=["kernels", "plain torch"])
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("warmup", [0, 4])
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize(("cls", "options"), [*CASES, LAMB])
def test_a_captured_step_replays_right(cls, options, decoupled, warmup, every, precision):
    """Captured once and replayed with new gradients and rates, one of which is 0, against eager steps that are given the
    rates as numbers and that count on the host where they can."""
    settings = options | without_waiting(cls) | {"decoupled": decoupled, "warmup": warmup, "every": every}
    settings |= {"constraint": 0.1, "precision": precision}
    eager, replayed = model(), model()
    plain = cls(eager.parameters(), **(settings | {"capturable": False} if cls is BortL else settings))
    rate = torch.tensor(options["lr"], device="cuda")
    graphed = cls(replayed.parameters(), **(settings | for_capture(cls) | {"lr": rate}))
    graph = captured(replayed, graphed, range(2))
    residuals = []
    for step in range(10):
        lr = options["lr"] if step < 2 else 0.0 if step == 5 else options["lr"] / step
        plain.param_groups[0]["lr"] = lr
        step_gradients(eager, step)
        plain.step()
        if step >= 2:
            rate.fill_(lr)
            step_gradients(replayed, step)
            graph.replay()
            residuals.append((graphed.residuals(), plain.residuals()))
    for a, b in zip(eager.parameters(), replayed.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    for ours, expected in residuals:
        assert ours == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("warmup", [0, 4])
@pytest.mark.parametrize(("cls", "options"), [*CASES, LAMB])
def test_a_replay_that_is_skipped_leaves_no_trace(cls, options, warmup, every):
    """found_inf, and gradients that are nan: the weights are those of the other steps."""
    settings = options | for_capture(cls) | {"warmup": warmup, "every": every, "constraint": 0.1}
    skipping, plain = model(), model()
    optimizers = [
        cls(net.parameters(), **(settings | {"lr": torch.tensor(options["lr"], device="cuda")}))
        for net in (skipping, plain)
    ]
    for optimizer in optimizers:
        optimizer.found_inf, optimizer.grad_scale = torch.zeros((), device="cuda"), None
    graph = captured(skipping, optimizers[0], range(2))
    for step in range(10):
        is_bad = step in (4, 7)
        if step >= 2:
            step_gradients(skipping, step)
            if is_bad:
                for p in skipping.parameters():
                    p.grad.fill_(torch.nan)
            optimizers[0].found_inf.fill_(float(is_bad))
            graph.replay()
        if not is_bad:
            step_gradients(plain, step)
            optimizers[1].step()
    for a, b in zip(skipping.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("cls", "options"), [*CASES, LAMB])
def test_a_warm_up_is_that_of_a_cpu(cls, options):
    on_gpu, on_cpu = model(), model().cpu()
    optimizers = [cls(net.parameters(), constraint=0.4, warmup=5, **options) for net in (on_gpu, on_cpu)]
    for step in range(8):
        step_gradients(on_gpu, step)
        for p, q in zip(on_gpu.parameters(), on_cpu.parameters(), strict=True):
            q.grad = p.grad.cpu()
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(on_gpu.parameters(), on_cpu.parameters(), strict=True):
        torch.testing.assert_close(p.cpu(), q, rtol=1e-2, atol=1e-3)
    copied = optimizers[0].state_dict()["param_groups"][0]["penalty_step"]
    assert float(copied) == 8


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
@pytest.mark.parametrize(
    ("cls", "lr", "every", "steps", "complaint"),
    [
        (BortS, 0.1, 2, 1, "every=2: .* has to count on the device"),
        (BortS, torch.tensor(0.1), 2, 0, "every=2, warmup=0: make a step before"),
        (BortL, 0.1, 1, 0, "Lamb has no state yet: make a step before"),
    ],
    ids=["counted on the host", "not counted yet", "no state yet"],
)
def test_what_cannot_be_captured_says_why(cls, lr, every, steps, complaint):
    net = model()
    lr = lr.cuda() if isinstance(lr, torch.Tensor) else lr
    optimizer = cls(net.parameters(), lr=lr, every=every, **without_waiting(cls))
    step_gradients(net, 0)
    for _ in range(steps):
        optimizer.step()
    net[0].weight.detach().flatten(1) @ net[0].weight.detach().flatten(1).mT  # cuBLAS cannot start during a capture
    with pytest.raises(RuntimeError, match=complaint), torch.cuda.graph(torch.cuda.CUDAGraph()):
        optimizer.step()
    torch.cuda.synchronize()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("cls", "options"), [*CASES, LAMB])
def test_grad_scaler(cls, options, fused):
    """The same weights as without scaling, and not a bit moved by a step with inf."""
    results = []
    for scale in (1.0, 2.0**14):
        net = model()
        optimizer = cls(net.parameters(), constraint=0.4, **options, **(without_waiting(cls) if fused else {}))
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
