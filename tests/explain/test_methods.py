"""Saliency maps: closed forms, the paper's own loop, and what all methods have in common."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bort import explain, invert, nets
from bort.explain._common import at_once, top_layer
from bort.explain._rise import draw, enlarge

QUICK = {
    "cam": {},
    "guided-ig": {"steps": 4},
    "ig": {"steps": 8},
    "rise": {"masks": 24, "cells": 4},
    "sat": {"k": 5},
    "xrai": {"steps": 4},
}


# --- SAT


def algorithm_1(net, image, k, value, threshold):
    """Line by line, one channel at a time."""
    g = invert.Backtracker(net, "conv5")
    z = g.features(image[None])[0]
    pairs = []
    y = F.max_pool2d(z, z.shape[1:]).flatten()
    for i in y.topk(k).indices.tolist():
        z0 = torch.zeros_like(z)
        z0[i].view(-1)[z[i].argmax()] = value
        signal = g(image[None], z0[None])[0].abs().sum(dim=0)
        pairs.append(((signal > threshold * signal.max()).double(), y[i]))
    return sum(weight * mask for mask, weight in pairs)


@pytest.mark.parametrize(("k", "value", "threshold"), [(1, 1.0, 0.1), (9, 1.0, 0.3), (9, 5.0, 0.0)])
def test_sat_is_algorithm_1(net, x, k, value, threshold):
    maps = explain.sat(net, x, layer="conv5", k=k, value=value, threshold=threshold)
    for image, found in zip(x, maps, strict=True):
        torch.testing.assert_close(found, algorithm_1(net, image, k, value, threshold))


def test_sliders_need_no_network(net, x):
    tracked = explain.track(net, x, k=9)
    assert tracked.layer == "conv5"
    torch.testing.assert_close(tracked.map(4, 0.2), explain.sat(net, x, k=4, threshold=0.2))
    with pytest.raises(ValueError, match="k=10: 9 channels were tracked"):
        tracked.map(10)
    with pytest.raises(ValueError, match="threshold=1: must be from 0 to below 1"):
        tracked.map(9, 1)


# --- CAM


class Head(nn.Module):
    def __init__(self, pool):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 6, 3, padding=1)
        self.fc = nn.Linear(6, 4)
        self.pool = pool

    def forward(self, x):
        z = F.relu(self.conv(x))
        return self.fc(z.mean(dim=(2, 3)) if self.pool == "average" else z.amax(dim=(2, 3)))


@pytest.mark.parametrize("pool", ["average", "maximum"])
def test_cam_is_the_weighted_sum_of_the_map(pool):
    net, x = Head(pool).double(), torch.randn(3, 2, 9, 9, dtype=torch.float64)
    z = F.relu(net.conv(x))
    for target in (None, 2, torch.tensor([0, 3, 1])):
        classes = net(x).argmax(dim=1) if target is None else torch.as_tensor(target).expand(3)
        expected = torch.einsum("nc,nchw->nhw", net.fc.weight[classes], z)
        torch.testing.assert_close(explain.cam(net, x, target), expected)


def test_cam_of_acnn_base_is_the_channel_of_the_class():
    """It has no head: its classes are the channels of the last map."""
    torch.manual_seed(0)
    net = nets.create("acnn-base", classes=5, image_size=32, width=0.05).double()
    x = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    net.conv12.bias.data += 1
    maps = F.interpolate(net.features(x)[:, 3:4], (32, 32), mode="bilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(explain.cam(net, x, 3, layer="conv12"), maps)


# --- Integrated Gradients


def test_ig_is_complete(net, x):
    """All places together are the difference of the logits."""
    for target in (None, 4):
        maps = explain.integrated_gradients(net, x, target, steps=200)
        classes = net(x).argmax(dim=1) if target is None else torch.full((3,), 4)
        rise = (net(x) - net(torch.zeros_like(x))).gather(1, classes[:, None])[:, 0]
        torch.testing.assert_close(maps.sum(dim=(1, 2)), rise, rtol=0.02, atol=1e-3)


def test_ig_of_a_linear_model_is_weight_times_image():
    net = nn.Sequential(nn.Flatten(), nn.Linear(2 * 5 * 5, 3)).double()
    x = torch.randn(2, 2, 5, 5, dtype=torch.float64)
    expected = (net[1].weight[1].view(2, 5, 5) * (x - 0.5)).sum(dim=1)
    torch.testing.assert_close(explain.integrated_gradients(net, x, 1, baseline=0.5), expected, rtol=1e-5, atol=1e-7)


# --- RISE


def test_rise_converges_to_the_analytic_map():
    """For a linear model A_p = Σ_q w_q x_q E[m_q m_p] / p, with the masks' second moment computed from their definition."""
    size, cells, keep = 6, 3, 0.5
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(size * size, 2, bias=False)).double()
    x = torch.rand(1, 1, size, size, dtype=torch.float64)
    basis = torch.eye(cells * cells, dtype=torch.float64).view(-1, 1, cells, cells)
    enlarged = F.interpolate(basis, [(cells + 1) * 2] * 2, mode="bilinear", align_corners=False)[:, 0]
    moment = torch.zeros(size * size, size * size, dtype=torch.float64)
    for row in range(2):
        for column in range(2):
            b = enlarged[:, row : row + size, column : column + size].reshape(cells * cells, -1)
            mean = keep * b.sum(dim=0)
            moment += (torch.outer(mean, mean) + keep * (1 - keep) * b.T @ b) / 4
    expected = (net[1].weight[1] * x.flatten()) @ moment / keep
    found = explain.rise(net, x, 1, masks=60_000, cells=cells, keep=keep, score="logit")
    assert (found.flatten() - expected).norm() / expected.norm() < 0.03


@pytest.mark.parametrize("name", ["sat", "cam"])
def test_in_batches(net, x, name, monkeypatch):
    classes = torch.tensor([1, 2, 3])
    expected = explain.get(name)(net, x, classes, **QUICK[name])
    monkeypatch.setattr("bort.invert._backtrack._BUDGET", 1)
    torch.testing.assert_close(explain.get(name)(net, x, classes, **QUICK[name]), expected)


def test_rise_in_chunks(net, x, monkeypatch):
    whole = explain.rise(net, x, masks=50, cells=4)
    monkeypatch.setattr("bort.explain._rise.at_once", lambda *_: 7)
    seen = []
    assert not torch.equal(explain.rise(net, x, masks=50, cells=4, seed=1), whole)
    chunked = explain.rise(net, x, masks=50, cells=4, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (7, 150), "masks times images"
    assert seen[-1] == (150, 150)
    torch.testing.assert_close(chunked, whole)


def test_masks():
    size = torch.Size((30, 41))
    masks = enlarge(*draw(500, 8, 0.3, size, torch.Generator().manual_seed(0)), size)
    assert masks.shape == (500, 30, 41)
    assert 0 <= masks.min() < masks.max() <= 1 + 1e-6
    assert masks.mean().item() == pytest.approx(0.3, abs=0.01)


# --- all of them


@pytest.mark.parametrize("name", QUICK)
def test_what_all_have_in_common(net, x, name):
    """(N, H, W); the same again; image by image the same; the model as it was, in train mode too."""
    method, options = explain.get(name), QUICK[name]
    maps = method(net, x, **options)
    assert maps.shape == (3, 28, 28)
    assert torch.isfinite(maps).all()
    assert maps.std() > 0
    torch.testing.assert_close(method(net, x, **options), maps)
    torch.testing.assert_close(torch.cat([method(net, image[None], **options) for image in x]), maps)
    model = copy.deepcopy(net).train()
    kept = x.clone()
    method(model, x, **options)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(x, kept)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("timm/resnet18", "layer4"),
        ("timm/densenet121", "features"),
        ("timm/inception_v3", "Mixed_7c"),
        ("timm/deit_tiny_patch16_224", "norm"),
        ("timm/swin_tiny_patch4_window7_224", "norm"),
        ("timm/convnext_atto", "stages"),
        ("timm/mobilenetv2_050", "bn2"),
    ],
)
def test_networks_of_timm(name, layer):
    """The top layer is found, token grids are reshaped, and maps come out."""
    torch.manual_seed(0)
    size = 160 if "inception" in name else 64
    net, x = nets.create(name, classes=4, image_size=size), torch.randn(2, 3, size, size)
    assert top_layer(net, x) == layer
    for method in (explain.cam, explain.sat):
        maps = method(net, x)
        assert maps.shape == (2, size, size)
        assert (maps.std(dim=(1, 2)) > 0).all()


class Strange(nn.Module):
    """Logits in a dict, and a first layer that works in place on its input."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return {"logits": self.net(x.sub_(0.5).add_(0.5))}


@pytest.mark.parametrize("name", QUICK)
def test_strange_models(net, x, name):
    kept = x.clone()
    maps = explain.get(name)(Strange(net), x, **QUICK[name])
    torch.testing.assert_close(maps, explain.get(name)(net, x, **QUICK[name]), rtol=1e-6, atol=1e-8)
    assert torch.equal(x, kept)


def test_sat_takes_the_channels_there_are(x):
    net = nets.create("lenet").double()
    torch.testing.assert_close(explain.sat(net, x), explain.sat(net, x, k=16))
    with pytest.raises(ValueError, match="k=17: the layer has 16 channels"):
        explain.sat(net, x, k=17)
    with pytest.raises(ValueError, match=r"value=0: must be above 0"):
        explain.sat(net, x, value=0)


def test_memory_is_judged_by_a_pass(net, x, monkeypatch):
    """The largest tensor that ACNN-Small makes of an image, and all of them together."""
    widest = max(c.out_channels * s * s for c, s in ((net.conv1, 28), (net.conv2, 28), (net.conv3, 14), (net.conv5, 6)))
    monkeypatch.setattr("bort.explain._common._LARGEST", 5 * widest)
    assert at_once(net, x) == 5
    monkeypatch.setattr("bort.explain._common._KEPT", 1)
    assert at_once(net, x, backward=True) == 1


def test_the_registry(net, x):
    def mine(model, x, target=None):
        return x.sum(dim=1)

    explain.register("mine", mine)
    try:
        assert explain.get("mine") is mine
        assert "mine" in explain.names()
        with pytest.raises(ValueError, match="a method called 'mine' is there already"):
            explain.register("mine", mine)
    finally:
        from bort.explain import _registry

        del _registry._METHODS["mine"]
    with pytest.raises(ValueError, match="no method is called 'rize'; there are rise"):
        explain.get("rize")
