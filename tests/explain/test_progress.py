"""Slow methods call progress often enough for a bar that moves, and can be cancelled in any of those calls."""

import copy
import threading

import pytest
import torch

from bort import explain

WATCHED = {  # options, and the least number of different calls
    "guided-ig": ({"steps": 12}, 12),
    "ig": ({"steps": 50}, 12),
    "rise": ({"masks": 2600}, 40),
    "xrai": (
        {"steps": 20},
        10 + 6 + 4,
    ),  # calls for the steps from both baselines, the scales, and a few rounds of growth
}


@pytest.mark.parametrize("name", WATCHED)
def test_one_scale_of_many_steps(net, x, name):
    """And the same map as without progress: in float64 another order of summing would show."""
    (options, least), method, calls = WATCHED[name], explain.get(name), []
    watched = method(net, x[:1], **options, progress=lambda *call: calls.append(call))
    torch.testing.assert_close(watched, method(net, x[:1], **options), rtol=1e-12, atol=0)
    done = [done for done, _ in calls]
    assert len(set(done)) >= least
    assert done == sorted(done)
    assert done[0] > 0
    assert {total for _, total in calls} == {done[-1]}


@pytest.mark.parametrize("name", ["ig", "xrai"])
def test_images_follow_each_other_on_the_scale(net, x, name):
    def calls(count):
        calls = []
        explain.get(name)(net, x[:count], steps=20, progress=lambda *call: calls.append(call))
        return calls

    (_, one), three = calls(1)[-1], calls(3)
    done = [done for done, _ in three]
    assert three[-1] == (3 * one, 3 * one)
    assert done == sorted(done)
    assert {one, 2 * one, 3 * one} <= set(done)


@pytest.mark.parametrize("part", [0, 0.3, 0.75, 0.9, 1])
@pytest.mark.parametrize("name", WATCHED)
def test_cancelling_leaves_nothing_behind(net, x, name, part):
    """In the steps of XRAI, between its scales, while it grows, and at the very end."""
    (options, _), method = WATCHED[name], explain.get(name)
    model, images, threads = copy.deepcopy(net).train(), x[:1].clone(), threading.active_count()

    def stop(done, total):
        if done >= part * total:
            raise explain.Cancelled

    with pytest.raises(explain.Cancelled):
        method(model, images, **options, progress=stop)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(images, x[:1])
    assert not images.requires_grad
    assert torch.is_grad_enabled()
    assert threading.active_count() <= threads
