"""Guided IG: parity with PAIR's saliency, and with Integrated Gradients where the path is straight."""

import numpy as np
import pytest
import torch
from torch import nn

from bort import explain, invert, nets

guided_ig_impl = pytest.importorskip("saliency.core.guided_ig").guided_ig_impl


@pytest.fixture
def oracle(monkeypatch):
    """PAIR's code, made to run: numpy 2 has renamed an argument of quantile."""

    from saliency.core import guided_ig

    real = np.quantile
    monkeypatch.setattr(
        guided_ig.np, "quantile", lambda values, fraction, interpolation: real(values, fraction, method=interpolation)
    )

    def run(model, image, target, **options):
        def slopes(x):
            leaf = torch.from_numpy(x)[None].requires_grad_()
            model(leaf)[0, target].backward()
            return leaf.grad[0].numpy()

        return guided_ig_impl(image.numpy(), np.zeros_like(image.numpy()), slopes, **options).sum(axis=0)

    return run


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return nets.create("lenet").double().eval()


def images(count, zeros=False):
    x = torch.randn(count, 1, 28, 28, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x * (x > 0) if zeros else x


@pytest.mark.parametrize(
    ("steps", "fraction", "distance"), [(20, 0.25, 0.02), (7, 0.1, 0.3), (12, 0.5, 1.0), (5, 1.0, 0.0), (9, 0.0, 0.2)]
)
@pytest.mark.parametrize("zeros", [False, True])
def test_parity_with_pair(net, oracle, steps, fraction, distance, zeros):
    """A batch of three, each image as PAIR's code explains it by itself; also with pixels that equal the baseline."""
    x = images(3, zeros)
    maps = explain.guided_ig(net, x, 4, steps=steps, fraction=fraction, distance=distance)
    for image, saliency in zip(x, maps, strict=True):
        expected = oracle(net, image, 4, steps=steps, fraction=fraction, max_dist=distance)
        np.testing.assert_allclose(saliency, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max() + 1e-12)


def test_straight_is_a_riemann_sum(net):
    """With distance 0 the path is the straight line."""
    x, steps = images(2), 40
    total = torch.zeros_like(x)
    for k in range(steps):
        leaf = (x * k / steps).requires_grad_()
        net(leaf)[:, 3].sum().backward()
        total += leaf.grad * x / steps
    torch.testing.assert_close(explain.guided_ig(net, x, 3, steps=steps, distance=0.0), total.sum(dim=1))


def test_complete_for_a_linear_model():
    net = nn.Sequential(nn.Flatten(), nn.Linear(32, 3)).double()
    x = torch.randn(2, 2, 4, 4, dtype=torch.float64)
    expected = (net[1].weight[1].view(2, 4, 4) * x).sum(dim=1)
    torch.testing.assert_close(explain.guided_ig(net, x, 1, steps=10), expected)


def test_an_image_that_is_the_baseline(net):
    x = images(2)
    x[0] = 0
    maps = explain.guided_ig(net, x, steps=5)
    assert not maps[0].any()
    assert maps[1].any()


def test_progress_and_batches(net):
    x, calls = images(3), []
    whole = explain.guided_ig(net, x, steps=5)
    one = invert.Backtracker(net, "conv2", "gradient").trace(x[:1])
    with explain.memory_budget(kept=2 * one.total):
        in_two = explain.guided_ig(net, x, steps=5, progress=lambda *call: calls.append(call))
    torch.testing.assert_close(in_two, whole)
    assert calls == [(k, 10) for k in range(1, 11)]


def test_bad_options(net):
    with pytest.raises(ValueError, match=r"steps=0, fraction=0\.25, distance=2"):
        explain.guided_ig(net, images(1), steps=0, distance=2)


def tiny(name):
    """An untrained network with LayerNorm and GELU, its last layer not 0, so that there is something to explain."""
    timm = pytest.importorskip("timm")
    models = {
        "convnext": lambda: timm.models.ConvNeXt(num_classes=5, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)),
        "vit": lambda: timm.models.VisionTransformer(32, 8, num_classes=5, embed_dim=24, depth=2, num_heads=3),
        "swin": lambda: timm.models.SwinTransformer(
            32, 2, num_classes=5, window_size=4, embed_dim=12, depths=(2, 2), num_heads=(2, 4)
        ),
        "mixer": lambda: timm.models.MlpMixer(5, img_size=32, patch_size=8, num_blocks=2, embed_dim=24),
    }
    torch.manual_seed(0)
    net = models[name]().eval()
    for layer in reversed(list(net.modules())):
        if isinstance(layer, nn.Linear) and layer.out_features == 5:
            nn.init.normal_(layer.weight, std=0.02)
    return net


@pytest.mark.parametrize("name", ["convnext", "vit", "swin", "mixer"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_singular_baseline_does_not_decide(name, bias):
    """Without biases every LayerNorm sees zeros at the baseline and divides by √ε. The map has the size of one whose baseline
    is next to 0, where the derivative is ordinary."""
    net, x = tiny(name), torch.randn(2, 3, 32, 32)
    if not bias:
        for key, p in net.named_parameters():
            if key.endswith(("bias", "pos_embed")):
                nn.init.zeros_(p)
    maps = explain.guided_ig(net, x, 1, steps=10)
    near = explain.guided_ig(net, x, 1, steps=10, baseline=0.02)
    sizes = [each.abs().amax(dim=(1, 2)) for each in (maps, near)]
    assert (sizes[0] < 10 * sizes[1]).all()
    assert (sizes[1] < 10 * sizes[0]).all()


def test_a_baseline_without_a_derivative():
    """√ has none at 0."""

    class Norm(nn.Module):
        def forward(self, x):
            lengths = x.flatten(1).square().sum(dim=1, keepdim=True).sqrt()
            return torch.cat([lengths, 2 * lengths], dim=1)

    x = torch.rand(2, 1, 4, 4) + 0.1
    maps = explain.guided_ig(Norm(), x, 0, steps=50)
    torch.testing.assert_close(maps.sum(dim=(1, 2)), x.flatten(1).norm(dim=1), rtol=0.1, atol=0)


@pytest.fixture(scope="module")
def trained():
    """A small ViT after 100 steps on digits."""
    timm = pytest.importorskip("timm")
    from bort import data

    torch.manual_seed(0)
    net = timm.models.VisionTransformer(28, 7, in_chans=1, num_classes=10, embed_dim=32, depth=2, num_heads=2)
    digits = data.load("mnist5k")
    x, labels = digits.examples(512, digits.view(28))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in range(100):
        part = torch.randperm(512)[:64]  # the examples are sorted by class
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[part]), labels[part]).backward()
        optimizer.step()
    net = net.double().eval()
    with torch.no_grad():
        assert (net(x.double()).argmax(dim=1) == labels).double().mean() > 0.5
    return net, x[:2].double()


def test_parity_with_pair_on_a_trained_vit(trained, oracle):
    net, x = trained
    maps = explain.guided_ig(net, x, 3, steps=20)
    for image, saliency in zip(x, maps, strict=True):
        expected = oracle(net, image, 3, steps=20, fraction=0.25, max_dist=0.02)
        np.testing.assert_allclose(saliency, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max() + 1e-12)
