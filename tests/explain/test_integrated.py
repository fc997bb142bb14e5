"""Integrated Gradients: completeness, and the closed form of a linear model."""

import pytest
import torch
from torch import nn

from bort import explain
from bort.explain import _integrated


def test_ig_is_complete(net, x):
    """The sum over all places is the difference of the logits."""
    for target in (None, 4):
        maps = explain.integrated_gradients(net, x, target, steps=200)
        classes = net(x).argmax(dim=1) if target is None else torch.full((3,), 4)
        rise = (net(x) - net(torch.zeros_like(x))).gather(1, classes[:, None])[:, 0]
        torch.testing.assert_close(maps.sum(dim=(1, 2)), rise, rtol=0.02, atol=1e-3)


def test_ig_of_a_linear_model_is_weight_times_image():
    net = nn.Sequential(nn.Flatten(), nn.Linear(2 * 5 * 5, 3)).double()
    x = torch.randn(2, 2, 5, 5, dtype=torch.float64)
    by_colour = net[1].weight[1].view(2, 5, 5) * (x - 0.5)
    maps = explain.integrated_gradients(net, x, 1, baseline=0.5)
    torch.testing.assert_close(maps, by_colour.sum(dim=1), rtol=1e-5, atol=1e-7)
    apart = explain.integrated_gradients(net, x, 1, baseline=torch.full((2, 5, 5), 0.5), by_colour=True)
    torch.testing.assert_close(apart, by_colour, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("steps", [7, 50])
@pytest.mark.parametrize("with_progress", [False, True])
def test_several_images_in_a_pass(net, x, monkeypatch, steps, with_progress):
    """As on a GPU: the maps are those of the images one by one, each for its own class and from its own baseline."""
    classes, start = torch.tensor([3, 0, 7]), 0.1 * x.flip(0)
    options = {"steps": steps, "baseline": start, "by_colour": True}
    one_by_one = explain.integrated_gradients(net, x, classes, **options)
    monkeypatch.setattr(_integrated, "images_in_a_pass", lambda x, steps, at_once: 2)
    calls = []
    if with_progress:
        options["progress"] = lambda done, total: calls.append((done, total))
    together = explain.integrated_gradients(net, x, classes, **options)
    torch.testing.assert_close(together, one_by_one, rtol=1e-9, atol=1e-12)
    assert not with_progress or calls[-1] == (3 * steps, 3 * steps)
