"""Slow methods tell how far they are, often enough for a bar that moves, and can be ended at any of those moments."""

import copy
import threading

import pytest
import torch

from bort import explain
from bort.explain._common import Meter

WATCHED = {
    "guided-ig": ({"steps": 12}, 12),
    "ig": ({"steps": 50}, 12),
    "rise": ({"masks": 2600}, 40),
    "xrai": ({"steps": 20}, 10 + 6 + 4),  # some steps from each baseline, the scales, some rounds of growth
}


@pytest.mark.parametrize("name", WATCHED)
def test_one_scale_of_many_steps(net, x, name):
    """And the same map as without: in float64 another order of adding up would still show."""
    (options, least), method, seen = WATCHED[name], explain.get(name), []
    watched = method(net, x[:1], **options, progress=lambda *call: seen.append(call))
    torch.testing.assert_close(watched, method(net, x[:1], **options), rtol=1e-12, atol=0)
    done = [each for each, _ in seen]
    assert len(set(done)) >= least
    assert done == sorted(done)
    assert done[0] > 0
    assert {total for _, total in seen} == {done[-1]}


@pytest.mark.parametrize("name", ["ig", "xrai"])
def test_images_follow_each_other_on_the_scale(net, x, name):
    seen = {}
    for count in (1, 3):
        calls = seen[count] = []
        explain.get(name)(net, x[:count], steps=20, progress=lambda *call, calls=calls: calls.append(call))
    (_, one), (_, three) = seen[1][-1], seen[3][-1]
    assert three == 3 * one
    assert [done for done, _ in seen[3]] == sorted(done for done, _ in seen[3])
    assert {one, 2 * one, 3 * one} <= {done for done, _ in seen[3]}


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


def test_a_meter():
    seen = []
    meter = Meter(lambda *call: seen.append(call), 7)
    first, second = meter.part(3), meter.part(4)
    for done in (1, 2):
        first(done, 2)
    for done in (10, 35, 40):
        second(done, 40)
    assert seen == [(1, 7), (3, 7), (4, 7), (6, 7), (7, 7)]
    assert Meter(None, 7).part(3) is None
