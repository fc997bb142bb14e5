"""What all methods have in common."""

import copy

import pytest
import torch
from torch import nn

from bort import explain

QUICK = {
    "cam": {},
    "guided-ig": {"steps": 4},
    "ig": {"steps": 8},
    "rise": {"masks": 24, "cells": 4},
    "sat": {"k": 5},
    "xrai": {"steps": 4},
}
"""Options with which each method of the package is fast."""


@pytest.mark.parametrize("name", QUICK)
def test_maps(net, x, name):
    """(N, H, W); the same again; image by image the same; the model as it was, in train mode too."""
    method, options = explain.get(name), QUICK[name]
    maps = method(net, x, **options)
    assert maps.shape == (3, 28, 28)
    assert torch.isfinite(maps).all()
    assert maps.std() > 0
    torch.testing.assert_close(method(net, x, **options), maps)
    torch.testing.assert_close(torch.cat([method(net, image[None], **options) for image in x]), maps)
    model = copy.deepcopy(net).train()
    original = x.clone()
    method(model, x, **options)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(x, original)


@pytest.mark.parametrize("name", QUICK)
def test_bad_input(net, x, name):
    method, options = explain.get(name), QUICK[name]
    with pytest.raises(ValueError, match="NaN or Inf"):
        method(net, x * torch.nan, **options)
    with pytest.raises(ValueError, match=r"target=10: the model has 10 classes, 0 to 9"):
        method(net, x, 10, **options)
    with pytest.raises(ValueError, match=r"target of shape \(2,\): give one class, or one for each of the 3 images"):
        method(net, x, torch.tensor([1, 2]), **options)
    with pytest.raises(ValueError, match=r"images of shape \(3, 28, 28\)"):
        method(net, x[:, 0], **options)
    with pytest.raises(ValueError, match="the input is on cpu, the model on meta"):
        method(copy.deepcopy(net).to("meta"), x, **options)


@pytest.mark.parametrize("name", ["cam", "sat"])
def test_bad_layers(net, x, name):
    method, options = explain.get(name), QUICK[name]
    with pytest.raises(ValueError, match="has no layer 'conv6'; there are 'conv5'"):
        method(net, x, layer="conv6", **options)
    with pytest.raises(ValueError, match="that is no map with places"):
        method(net, x, layer="head", **options)


@pytest.mark.parametrize("name", ["cam", "guided-ig", "ig", "sat"])
def test_in_batches(net, x, name):
    """With memory for one image at a time the maps are the same."""
    classes = torch.tensor([1, 2, 3])
    expected = explain.get(name)(net, x, classes, **QUICK[name])
    with explain.memory_budget(forward=1, backward=1, kept=1):
        torch.testing.assert_close(explain.get(name)(net, x, classes, **QUICK[name]), expected)


class Strange(nn.Module):
    """Logits in a dict, and a first layer that works in place on its input."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return {"logits": self.net(x.sub_(0.5).add_(0.5))}


@pytest.mark.parametrize("name", QUICK)
def test_strange_models(net, x, name):
    original = x.clone()
    maps = explain.get(name)(Strange(net), x, **QUICK[name])
    torch.testing.assert_close(maps, explain.get(name)(net, x, **QUICK[name]), rtol=1e-6, atol=1e-8)
    assert torch.equal(x, original)
