"""Wᵀ(Wz) of single layers."""

import copy

import pytest
import torch
from torch import nn

from bort import audit, invert


@pytest.mark.parametrize("layer", ["conv1", "conv2", "conv3", "head"])
def test_layer_by_layer(net, x, layer):
    """Wᵀ(Wz) patch by patch, and the ratio that the audit has."""
    result = invert.reconstruct_layer(net, x, layer)
    w = getattr(net, layer).weight.detach().flatten(1)
    torch.testing.assert_close(result.outputs, torch.einsum("oi,oj,njp->nip", w, w, result.inputs))
    total = ((result.inputs - result.outputs).norm() / result.inputs.norm()).item()
    assert audit(net, x)[f"{layer}.weight"].ratio == pytest.approx(total, rel=1e-6)
    one = (result.inputs[1] - result.outputs[1]).norm() / result.inputs[1].norm()
    torch.testing.assert_close(result.ratio[1], one)


def test_an_orthogonal_layer_loses_nothing():
    layer = nn.Linear(4, 9, bias=False)
    nn.init.orthogonal_(layer.weight)
    result = invert.reconstruct_layer(nn.Sequential(layer, nn.ReLU()), torch.randn(5, 4), "0")
    assert result.ratio.max() < 1e-5


def test_a_convolution_that_pads_in_its_own_forward():
    """timm's Conv2dSame: its vectors are patches of what it convolves, so that their products with W are its outputs."""
    timm = pytest.importorskip("timm")
    conv = timm.layers.Conv2dSame(3, 5, 3, stride=2, bias=False)
    x = torch.randn(2, 3, 7, 8)
    result = invert.reconstruct_layer(nn.Sequential(conv), x, "0")
    torch.testing.assert_close(conv.weight.flatten(1) @ result.inputs, conv(x).flatten(2))


def test_the_model_is_left_as_it_was(net, x):
    model = copy.deepcopy(net).train()
    invert.reconstruct_layer(model, x, "conv2")
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_bad_input():
    with pytest.raises(ValueError, match="is a ReLU, not a linear map"):
        invert.reconstruct_layer(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.randn(1, 2), "1")
    shared = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="was used 6 times for 3 images"):
        invert.reconstruct_layer(nn.Sequential(shared, nn.ReLU(), shared), torch.randn(3, 2), "0")
