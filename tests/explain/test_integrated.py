"""Integrated Gradients: completeness, and the closed form of a linear model."""

import torch
from torch import nn

from bort import explain


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
