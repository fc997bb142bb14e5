"""Reconstruction and decomposition, against the paper's loops."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bort import invert


def papers_decomposition(net, image, k, value):
    """Algorithm 1's lines 2 to 8, one channel at a time."""
    back = invert.Backtracker(net, "conv5")
    z = back.features(image[None])[0]
    y = F.max_pool2d(z, z.shape[1:]).flatten()
    parts = []
    for i in y.topk(k).indices.tolist():
        z0 = torch.zeros_like(z)
        z0[i].view(-1)[z[i].argmax()] = value
        parts.append((i, y[i].item(), back(image[None], z0[None])[0]))
    return parts


def test_decompose_is_the_papers_loop(net, x):
    parts = invert.decompose(net, x, "conv5", k=7, value=2.0)
    for n, image in enumerate(x):
        for j, (channel, strength, signal) in enumerate(papers_decomposition(net, image, 7, 2.0)):
            assert parts.channels[n, j] == channel
            assert parts.values[n, j].item() == pytest.approx(strength)
            torch.testing.assert_close(parts.signals[n, j], signal)
            row, column = parts.places[n, j].tolist()
            assert invert.Backtracker(net, "conv5").features(x)[n, channel, row, column].item() == pytest.approx(
                strength
            )
    assert parts.clusters is None


def test_reconstruct_whole_and_from_k(net, x):
    back = invert.Backtracker(net, "conv5")
    torch.testing.assert_close(invert.reconstruct(net, x, "conv5"), back.reconstruct(x))
    maps = back.features(x)
    seed = torch.zeros_like(maps)
    for n in range(3):
        for i in maps[n].amax(dim=(1, 2)).topk(5).indices:
            seed[n, i].view(-1)[maps[n, i].argmax()] = 1.0
    torch.testing.assert_close(invert.reconstruct(net, x, "conv5", 5), back(x, seed))
    strong = invert.reconstruct(net, x, "conv5", 5, binary=False, value=3.0)
    torch.testing.assert_close(strong, back(x, 3.0 * seed * maps))


def test_in_batches(net, x):
    def all_three():
        parts = invert.decompose(net, x, "conv5", 3, clusters=2)
        wholes = (invert.reconstruct(net, x, "conv5", k) for k in (None, 3))
        return parts.signals, parts.places, parts.clusters, *wholes

    expected = all_three()
    with invert.memory_budget(backward=1):
        results = all_three()
    for result, whole in zip(results, expected, strict=True):
        torch.testing.assert_close(result, whole)


def test_clusters_find_two_kinds():
    """A net whose channels see the left or the right half: two clusters."""

    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 6, (4, 8), bias=False)
            with torch.no_grad():
                self.conv.weight.zero_()
                self.conv.weight[:3, :, :, :4] = torch.rand(3, 1, 4, 4) + 1
                self.conv.weight[3:, :, :, 4:] = torch.rand(3, 1, 4, 4) + 1

        def forward(self, x):
            return F.relu(self.conv(x)).flatten(1)

    parts = invert.decompose(Halves(), torch.ones(1, 1, 4, 8), "conv", k=6, clusters=2)
    groups = [set(parts.channels[0][parts.clusters[0] == c].tolist()) for c in (0, 1)]
    assert sorted(map(sorted, groups)) == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="clusters=7: there are 6 signals"):
        invert.decompose(Halves(), torch.ones(1, 1, 4, 8), "conv", k=6, clusters=7)


def test_the_model_is_left_as_it_was(net, x):
    model = copy.deepcopy(net).train()
    invert.decompose(model, x, "conv5", k=2)
    invert.reconstruct(model, x, "conv5", k=2)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_bad_input(net, x):
    channels = net.conv5.out_channels
    with pytest.raises(
        ValueError, match=rf"k={channels + 1}: the layer has {channels} channels, choose from 1 to {channels}"
    ):
        invert.decompose(net, x, "conv5", k=channels + 1)
    with pytest.raises(ValueError, match="k=0"):
        invert.reconstruct(net, x, "conv5", k=0)
    with pytest.raises(ValueError, match=r"the layer 'head' has features of shape \(3, 10\): that is no map"):
        invert.decompose(net, x, "head", k=2)
