"""A CUDA graph of ours is never replayed on memory that is somebody else's: weights and gradients that are swapped, freed,
narrowed, converted, frozen, added and moved, with nan where they were."""

import gc

import pytest
import torch
from torch import nn

from bort import BortS

from .on_gpu import (
    NEEDS_CUDA,
    SHAPES,
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


def trained(monkeypatch, decoupled, graphs, events, steps=9, **options):
    """Weights after steps between which events happen: {step: function of the weights}."""
    params = parameters()
    optimizer = BortS(params, **({"lr": 0.1, "decoupled": decoupled} | options))
    for step in range(steps):
        events.get(step, lambda params: None)(params)
        set_gradients(params, step, anew=True)
        made(monkeypatch, optimizer.step, graphs)
    return clones(params)


def poisoned(tensor):
    """Its memory freed, and given to a tensor of nan, which is returned."""
    address, shape = tensor.data_ptr(), tensor.shape
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    del tensor
    storage.resize_(0)
    others = []
    for _ in range(100):
        others.append(torch.empty(size // 4, device="cuda"))
        if others[-1].data_ptr() == address:
            return others[-1].fill_(torch.nan)
    pytest.skip(f"the allocator did not give the memory of {tuple(shape)} away again")


def test_freed_weights_are_neither_read_nor_written(decoupled, monkeypatch):
    """Whatever is at their old addresses: here nan, which would spread, and must stay."""
    witnesses = []

    def swap(params):
        for p in params[::2]:
            old, p.data = p.data, p.data.clone()
            witnesses.append(poisoned(old))

    events = {3: swap, 6: swap}
    assert_bits(
        trained(monkeypatch, decoupled, True, events), trained(monkeypatch, decoupled, False, {3: _swap, 6: _swap})
    )
    assert witnesses
    assert all(witness.isnan().all() for witness in witnesses)


def _swap(params):
    for p in params[::2]:
        p.data = p.data.clone()


def test_freed_gradients_are_not_read(monkeypatch):
    results = []
    for graphs in (True, False):
        params = parameters()
        optimizer = BortS(params, lr=0.1)
        witnesses = []
        for step in range(6):
            for p in params:
                if graphs and p.grad is not None and step >= 3:
                    old, p.grad = p.grad, None
                    witnesses.append(poisoned(old))
            set_gradients(params, step, anew=True)
            made(monkeypatch, optimizer.step, graphs)
        results.append(clones(params))
    assert_bits(*results)


@pytest.mark.parametrize(
    "event",
    [
        lambda params: [setattr(p, "data", p.data[: len(p) // 2]) for p in params[:2]],
        lambda params: [setattr(p, "data", p.data.T) for p in params[:2]],
        lambda params: [setattr(p, "data", p.data.half()) for p in params[:2]],
    ],
    ids=["narrowed", "transposed", "another dtype"],
)
def test_weights_that_change_their_shape_or_memory(event, decoupled, monkeypatch):
    def happen(params):
        event(params)
        for p in params:
            p.grad = None

    assert_bits(trained(monkeypatch, decoupled, True, {4: happen}), trained(monkeypatch, decoupled, False, {4: happen}))


@pytest.mark.parametrize("scale", [1.0, "initial"])
def test_weights_that_are_frozen_added_and_moved_to_another_device(scale, decoupled, monkeypatch):
    results = []
    for graphs in (True, False):
        params = parameters()
        optimizer = BortS(params[:5], lr=0.1, decoupled=decoupled, scale=scale)
        for step in range(12):
            if step == 3:
                optimizer.add_param_group({"params": params[5:]})
            if step in (6, 9):  # away and back
                for p in params:
                    p.data = p.data.cpu() if step == 6 else p.data.cuda()
            for position, p in enumerate(params):
                is_frozen = position == 1 and step >= 8
                p.grad = None if is_frozen else noise(p.shape, 100 * step + position).to(p.device)
            made(monkeypatch, optimizer.step, graphs)
        results.append(clones(params))
    assert_bits(*results)


def test_weights_on_a_cpu_in_the_same_group(decoupled):
    results = []
    for mixed in (False, True):
        params = [nn.Parameter(noise(shape, seed).cpu()) for seed, shape in enumerate(SHAPES)]
        for p in params[: 4 if mixed else 0]:
            p.data = p.data.cuda()
        optimizer = BortS(params, lr=0.1, constraint=0.3, decoupled=decoupled, foreach=False)
        for step in range(4):
            for position, p in enumerate(params):
                p.grad = noise(p.shape, 100 * step + position).to(p.device)
            optimizer.step()
        results.append([p.detach().cpu() for p in params])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)


def test_the_memory_of_weights_that_are_gone_is_free(decoupled):
    params = parameters([(512, 512), (512, 640)])
    optimizer = BortS(params, lr=0.1, decoupled=decoupled)
    for step in range(3):
        set_gradients(params, step)
        optimizer.step()
    before = torch.cuda.memory_allocated()
    params[1].grad = None
    params[1].data = torch.empty(0, device="cuda")
    assert torch.cuda.memory_allocated() <= before - 2 * 4 * 512 * 640
    gone = torch.cuda.memory_allocated()
    del optimizer
    gc.collect()
    assert torch.cuda.memory_allocated() < gone, "scratch is freed with the optimizer"


def test_recordings_that_come_and_go_with_products_of_torch(decoupled):
    """The workspaces of cuBLAS outlive the graphs: torch's compiler drops torch's own list of them."""
    first = None
    for _ in range(5):
        params = parameters([(4, 60), (60, 4), (7, 90)])
        optimizer = BortS(params, lr=0.1, decoupled=decoupled)
        for step in range(4):
            set_gradients(params, step)
            optimizer.step()
            torch._C._cuda_clearCublasWorkspaces()
            torch.empty(2**25, device="cuda").fill_(torch.nan)
        del optimizer
        gc.collect()
        torch.cuda.empty_cache()
        first = first or clones(params)
        assert_bits(first, clones(params))
