"""Adversarial synthesis, against the paper's recipe."""

import copy

import pytest
import torch

from bort import invert


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
    result = invert.synthesize(net, source, target, "conv5", k=6, value=1.5, path="source")
    for n in range(3):
        ztr, signal = papers_synthesis(net, source[n], target[n], 6, 1.5)
        image = result.images[n]
        scaled = (signal - signal.mean()) / signal.std() * source[n].std() + source[n].mean()
        torch.testing.assert_close(image, scaled)
        assert result.map_verdicts[n] == net.head(ztr.amax(dim=(1, 2))).argmax()
        assert result.image_verdicts[n] == net(image[None]).argmax()
        similarity = torch.corrcoef(torch.stack([image.flatten(), source[n].flatten()]))[0, 1]
        torch.testing.assert_close(result.source_similarity[n], similarity)
    assert torch.equal(result.target_classes, net(target).argmax(dim=1))
    assert torch.equal(result.source_classes, net(source).argmax(dim=1))


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


def test_in_batches(net, x):
    expected = invert.synthesize(net, x, x.flip(0), "conv5", k=6)
    with invert.memory_budget(backward=1):
        result = invert.synthesize(net, x, x.flip(0), "conv5", k=6)
    for name, value in vars(expected).items():
        torch.testing.assert_close(getattr(result, name), value)


def test_success_counts_pairs_of_two_classes():
    synthesis = invert.Synthesis(
        torch.zeros(3, 1),
        map_verdicts=torch.tensor([1, 0, 1]),
        image_verdicts=torch.tensor([0, 0, 1]),
        source_classes=torch.tensor([0, 1, 1]),
        target_classes=torch.tensor([1, 0, 1]),
        source_similarity=torch.zeros(3),
        target_similarity=torch.zeros(3),
    )
    assert synthesis.pairs == 2
    assert (synthesis.map_success, synthesis.image_success) == (1.0, 0.5)


def test_the_model_is_left_as_it_was(net, x):
    model = copy.deepcopy(net).train()
    invert.synthesize(model, x, x.flip(0), "conv5", k=2)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_bad_input(net, x):
    with pytest.raises(ValueError, match="must be of one shape"):
        invert.synthesize(net, x, x[:1], "conv5", k=2)
    with pytest.raises(ValueError, match="path='mine'"):
        invert.synthesize(net, x, x, "conv5", k=2, path="mine")
    with pytest.raises(ValueError, match="rounds=-1"):
        invert.synthesize(net, x, x, "conv5", k=2, rounds=-1)
