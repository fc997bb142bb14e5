"""CUDA graphs of our own: the bits of steps launched one by one, one launch, no waiting.

Beside other graphs, streams and threads: test_graphs_beside_cuda. What happens to weights and their memory:
test_graphs_memory_cuda. On CPU tensors, with many more events: test_recording.
"""

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from bort import BortS, bortify, param_groups

from .on_gpu import (
    NEEDS_CUDA,
    Still,
    assert_bits,
    clones,
    decoupled,
    made,
    noise,
    parameters,
    set_gradients,
)

pytestmark = NEEDS_CUDA
__all__ = ["decoupled"]  # a fixture


def graph_launches(step):
    """How often a step launches a graph, and how often kernels and copies beside it."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        step()
        torch.cuda.synchronize()
    counts = {event.key: event.count for event in profiler.key_averages()}
    others = sum(n for name, n in counts.items() if "LaunchKernel" in name or name.startswith("cudaMemcpy"))
    return sum(n for name, n in counts.items() if "GraphLaunch" in name), others


def test_a_step_launches_one_graph_and_nothing_else(decoupled):
    params = parameters()
    set_gradients(params, 0)
    optimizer = bortify(Still)(params, lr=1e-3, decoupled=decoupled)
    for _ in range(3):
        optimizer.step()
    graphs, others = graph_launches(optimizer.step)
    assert graphs == 1
    assert others <= (0 if decoupled else 3), "the gradients of three weights that the kernels do not take are copied"


OPTIONS = {
    "default": {},
    "highest": {"precision": "highest"},
    "medium": {"precision": "medium"},
    "rows": {"mode": "rows"},
    "columns": {"mode": "columns"},
    "l1-full": {"mode": "l1-full"},
    "adaptive": {"scale": "adaptive"},
    "initial": {"scale": "initial"},
    "every": {"every": 2},
    "warm-up": {"warmup": 3},
    "a large step": {"constraint": 50.0},
}


@pytest.mark.filterwarnings("ignore:param group 0")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_replayed_steps_have_the_bits_of_single_launches(options, decoupled, monkeypatch):
    """With rates and gradients that change."""
    results = []
    for graphs in (True, False):
        params = parameters()
        settings = {"lr": 0.1, "momentum": 0.9, "constraint": 0.1, "decoupled": decoupled, "fused": True} | options
        optimizer = BortS(params, **settings)
        history = []
        for step in range(7):
            set_gradients(params, step, anew=step % 2 == 0)
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step // 2)
            made(monkeypatch, optimizer.step, graphs)
            history += clones(params)
        results.append((history, optimizer.residuals()))
    assert_bits(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_and_layouts(dtype, decoupled, monkeypatch):
    results = []
    for graphs in (True, False):
        params = parameters(dtype=dtype)
        params[2].data = params[2].data.to(memory_format=torch.channels_last)
        optimizer = BortS(params, lr=0.1, decoupled=decoupled)
        for step in range(4):
            set_gradients(params, step, anew=True)
            params[0].grad = noise((96, 64), step).to(dtype).T
            made(monkeypatch, optimizer.step, graphs)
        results.append(clones(params))
    assert_bits(*results)


def test_grouped_convolutions(decoupled, monkeypatch):
    results = []
    for graphs in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(16, 32, 3, groups=16), nn.Conv2d(32, 32, 3, groups=4), nn.Conv2d(32, 8, 3)).cuda()
        optimizer = BortS(param_groups(net, exclude=()), lr=0.1, decoupled=decoupled)
        for step in range(4):
            set_gradients(list(net.parameters()), step)
            made(monkeypatch, optimizer.step, graphs)
        results.append(clones(net.parameters()))
    assert_bits(*results)


@pytest.mark.parametrize("shape", [(4096, 8448), (8448, 4096)])
def test_large_weights(shape, decoupled, monkeypatch):
    results = []
    for graphs in (True, False):
        (p,) = params = parameters([shape])
        p.data /= 8
        optimizer = BortS(params, lr=0.1, decoupled=decoupled)
        for step in range(3):
            set_gradients(params, step)
            made(monkeypatch, optimizer.step, graphs)
        results.append(clones(params))
    assert_bits(*results)


def test_no_step_waits_for_the_device(decoupled):
    """Neither when it is recorded, nor when its rate changes or its gradients move. (The first one uploads tables.)"""
    params = parameters()
    optimizer = BortS(params, lr=0.1, momentum=0.9, decoupled=decoupled, fused=True)
    set_gradients(params, 0)
    optimizer.step()
    try:
        torch.cuda.set_sync_debug_mode("error")
        for step in range(6):
            set_gradients(params, step, anew=step % 2 == 0)
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_step_that_the_scaler_calls_off_leaves_no_trace(decoupled):
    params = parameters()
    optimizer = BortS(params, lr=0.1, momentum=0.9, decoupled=decoupled, fused=True)
    found_inf, optimizer.grad_scale = torch.zeros((), device="cuda"), torch.full((), 4.0, device="cuda")
    optimizer.found_inf = found_inf
    for step in range(4):
        set_gradients(params, step)
        optimizer.step()
    before, residuals = clones(params), optimizer.residuals()
    found_inf.fill_(1.0)
    for p in params:
        p.grad.fill_(torch.nan)
    optimizer.step()
    assert_bits(before, clones(params))
    assert optimizer.residuals() == residuals
    found_inf.fill_(0.0)
    set_gradients(params, 5)
    optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, clones(params), strict=True))
