"""Reconstruction, decomposition and synthesis, against the paper's loops."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bort import invert, nets
from bort.invert._grid import grid_of
from bort.invert._salient import salient


def papers_decomposition(net, image, k, value):
    """Algorithm 1's lines 2 to 8, one channel at a time."""
    back = invert.Backtracker(net, "conv5")
    z = back.features(image[None])[0]
    y = F.max_pool2d(z, z.shape[1:]).flatten()
    found = []
    for i in y.topk(k).indices.tolist():
        z0 = torch.zeros_like(z)
        z0[i].view(-1)[z[i].argmax()] = value
        found.append((i, y[i].item(), back(image[None], z0[None])[0]))
    return found


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


def test_in_batches(net, x, monkeypatch):
    def all_three():
        parts = invert.decompose(net, x, "conv5", 3, clusters=2)
        wholes = (invert.reconstruct(net, x, "conv5", k) for k in (None, 3))
        return parts.signals, parts.places, parts.clusters, *wholes

    expected = all_three()
    monkeypatch.setattr("bort.invert._backtrack._BUDGET", 1)
    for found, wanted in zip(all_three(), expected, strict=True):
        torch.testing.assert_close(found, wanted)


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


@pytest.mark.parametrize("layer", ["conv1", "conv2", "conv3", "head"])
def test_layer_by_layer(net, x, layer):
    """Wᵀ(Wz) patch by patch, and the ratio that the audit has."""
    found = invert.reconstruct_layer(net, x, layer)
    w = getattr(net, layer).weight.detach().flatten(1)
    torch.testing.assert_close(found.outputs, torch.einsum("oi,oj,njp->nip", w, w, found.inputs))
    from bort import audit

    total = ((found.inputs - found.outputs).norm() / found.inputs.norm()).item()
    assert audit(net, x)[f"{layer}.weight"].ratio == pytest.approx(total, rel=1e-6)
    one = (found.inputs[1] - found.outputs[1]).norm() / found.inputs[1].norm()
    torch.testing.assert_close(found.ratio[1], one)


def test_an_orthogonal_layer_loses_nothing():
    layer = nn.Linear(4, 9, bias=False)
    nn.init.orthogonal_(layer.weight)
    found = invert.reconstruct_layer(nn.Sequential(layer, nn.ReLU()), torch.randn(5, 4), "0")
    assert found.ratio.max() < 1e-5


def papers_synthesis(net, source, target, k, value):
    back = invert.Backtracker(net, "conv5")
    zs, zt = back.features(source[None])[0], back.features(target[None])[0]
    yt = zt.amax(dim=(1, 2))
    ztr = torch.zeros_like(zs)
    for i in yt.topk(k).indices.tolist():
        ztr[i].view(-1)[zs[i].argmax()] = yt[i] * value
    return ztr, back(source[None], ztr[None])[0]


def test_synthesize_is_the_papers_recipe(net, x):
    source, target = x, x.flip(0)
    found = invert.synthesize(net, source, target, "conv5", k=6, value=1.5, path="source")
    for n in range(3):
        ztr, signal = papers_synthesis(net, source[n], target[n], 6, 1.5)
        image = found.images[n]
        scaled = (signal - signal.mean()) / signal.std() * source[n].std() + source[n].mean()
        torch.testing.assert_close(image, scaled)
        assert found.map_verdicts[n] == net.head(ztr.amax(dim=(1, 2))).argmax()
        assert found.image_verdicts[n] == net(image[None]).argmax()
        similarity = torch.corrcoef(torch.stack([image.flatten(), source[n].flatten()]))[0, 1]
        torch.testing.assert_close(found.source_similarity[n], similarity)
    assert torch.equal(found.target_classes, net(target).argmax(dim=1))
    assert torch.equal(found.source_classes, net(source).argmax(dim=1))


def test_whose_path(net, x):
    source, target = x, x.flip(0)
    images = {
        path: invert.synthesize(net, source, target, "conv5", k=6, path=path).images
        for path in ("source", "target", "none")
    }
    assert not torch.allclose(images["source"], images["target"])
    assert not torch.allclose(images["source"], images["none"])
    again = invert.synthesize(net, source, target, "conv5", k=6, path="source", rounds=1).images
    assert not torch.allclose(again, images["source"])
    default = invert.synthesize(net, source, target, "conv5", k=6)
    torch.testing.assert_close(default.images, images["none"])


def test_pairs_in_batches(net, x, monkeypatch):
    expected = invert.synthesize(net, x, x.flip(0), "conv5", k=6)
    monkeypatch.setattr("bort.invert._backtrack._BUDGET", 1)
    found = invert.synthesize(net, x, x.flip(0), "conv5", k=6)
    for name, value in vars(expected).items():
        torch.testing.assert_close(getattr(found, name), value)


def test_success_counts_pairs_of_two_classes():
    classes = torch.tensor([0, 1, 1])
    found = invert.Synthesis(
        torch.zeros(3, 1),
        map_verdicts=torch.tensor([1, 0, 1]),
        image_verdicts=torch.tensor([0, 0, 1]),
        source_classes=classes,
        target_classes=torch.tensor([1, 0, 1]),
        source_similarity=torch.zeros(3),
        target_similarity=torch.zeros(3),
    )
    assert (found.map_success, found.image_success) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("name", "layer", "layout", "shape"),
    [
        ("timm/deit_tiny_patch16_224", "blocks.1", "tokens", (192, 4, 4)),
        ("timm/deit_tiny_distilled_patch16_224", "blocks.1", "tokens", (192, 4, 4)),
        ("timm/swin_tiny_patch4_window7_224", "layers.1", "channels last", (192, 8, 8)),
        ("timm/resnet18", "layer2", "channels first", (128, 8, 8)),
    ],
)
def test_maps_of_other_networks(name, layer, layout, shape):
    """Tokens and channels-last maps are maps too: there and back, and a decomposition."""
    torch.manual_seed(0)
    model = nets.create(name, classes=3, image_size=64)
    images = torch.randn(2, 3, 64, 64)
    features = invert.Backtracker(model, layer).features(images)
    grid = grid_of(model, layer, features)
    assert (grid.layout, grid.shape) == (layout, shape)
    maps = grid.to_map(features)
    assert maps.shape == (2, *shape)
    back = grid.from_map(maps)
    torch.testing.assert_close(back[:, grid.prefix :], features[:, grid.prefix :])
    assert not back[:, : grid.prefix].any()
    parts = invert.decompose(model, images, layer, k=3)
    assert parts.signals.shape == (2, 3, 3, 64, 64)
    assert torch.isfinite(parts.signals).all()


def test_the_model_is_left_as_it_was(net, x):
    model = copy.deepcopy(net).train()
    invert.reconstruct_layer(model, x, "conv2")
    invert.synthesize(model, x, x.flip(0), "conv5", k=2)
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
        salient(torch.zeros(1, 2, 3, 3), 0)
    with pytest.raises(ValueError, match=r"the layer 'head' has features of shape \(3, 10\): that is no map"):
        invert.decompose(net, x, "head", k=2)
    with pytest.raises(ValueError, match="must be of one shape"):
        invert.synthesize(net, x, x[:1], "conv5", k=2)
    with pytest.raises(ValueError, match="path='mine'"):
        invert.synthesize(net, x, x, "conv5", k=2, path="mine")
    with pytest.raises(ValueError, match="is a ReLU, not a linear map"):
        invert.reconstruct_layer(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.randn(1, 2), "1")
