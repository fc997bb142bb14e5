"""Models in half precision: gradients are those of the model in float32; what only looks forward runs in half precision, is
scored in float32, and differs from float32 by the rounding of the model."""

import pytest
import torch
from torch import nn

from bort import audit, explain, invert, measure
from bort._inspect import precise
from tests.functions import FUNCTIONS, GRADIENTS

HALVES = [torch.float16, torch.bfloat16]


def network(kind="cnn"):
    torch.manual_seed(0)
    if kind == "cnn":
        return nn.Sequential(
            *(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)),
        ).eval()
    models = pytest.importorskip("torchvision").models
    if kind == "swin":
        return models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=4).eval()
    net = models.VisionTransformer(32, 8, 2, 2, 24, 48, num_classes=4).eval()
    nn.init.normal_(net.heads.head.weight, std=0.1)
    return net


def both(kind, dtype):
    """The model and the images in half precision, and the same numbers in float32."""
    torch.manual_seed(1)
    x = nn.functional.interpolate(torch.randn(2, 3, 4, 4), (32, 32), mode="bilinear").to(dtype)
    half = network(kind).to(dtype)
    whole = network(kind)
    whole.load_state_dict(half.state_dict())
    return half, x, whole, x.float()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", ["cnn", "vit", "swin"])
@pytest.mark.parametrize("name", [name for name in GRADIENTS if name != "xrai"])
def test_gradients_are_those_of_float32(name, kind, dtype):
    half, x, whole, same = both(kind, dtype)
    result = FUNCTIONS[name].call(half, x)
    assert result.dtype == torch.float32
    assert torch.equal(result, FUNCTIONS[name].call(whole, same))
    assert all(p.dtype == dtype for p in half.parameters())


def test_xrai():
    half, x, whole, same = both("cnn", torch.bfloat16)
    assert torch.equal(FUNCTIONS["xrai"].call(half, x[:1]), FUNCTIONS["xrai"].call(whole, same[:1]))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", ["cnn", "vit", "swin"])
@pytest.mark.parametrize("name", ["rise", "deletion and insertion"])
def test_passes_are_rounded_and_scores_are_not(name, kind, dtype):
    """To 5% of the largest number: bfloat16 has eight bits, and the order of pixels is that of rounded ones."""
    half, x, whole, same = both(kind, dtype)
    result, expected = FUNCTIONS[name].call(half, x), FUNCTIONS[name].call(whole, same)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, expected, rtol=0, atol=0.05 * expected.abs().max().item())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", ["cnn", "vit", "swin"])
def test_the_audit(kind, dtype):
    """Of the same weights the same numbers; ratios on inputs that the layers have received in half precision."""
    half, x, whole, same = both(kind, dtype)
    for layer, expected in zip(audit(half, x), audit(whole, same), strict=True):
        assert (layer.sigma, layer.residual, layer.row_norms) == (expected.sigma, expected.residual, expected.row_norms)
        assert layer.ratio == pytest.approx(expected.ratio, abs=0.02)
        assert layer.cosine == pytest.approx(expected.cosine, abs=0.02)
    ratio = invert.reconstruct_layer(
        half, x, next(n for n, m in half.named_modules() if isinstance(m, nn.Conv2d))
    ).ratio
    assert ratio.dtype == torch.float32


@pytest.mark.parametrize("dtype", HALVES)
def test_what_judges_a_model_runs_as_it_is(dtype):
    half, x, whole, same = both("cnn", dtype)
    for name in ("evaluate", "robustness", "randomised"):
        assert torch.isfinite(FUNCTIONS[name].call(half, x)).all()
    assert measure.calibration(half(x), torch.tensor([0, 1])).error == pytest.approx(
        measure.calibration(whole(same), torch.tensor([0, 1])).error, abs=0.02
    )


def test_signals_that_float16_cannot_hold():
    """g of a few layers is beyond 65,504, and its correlation is still that of float32."""
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())]
    model = nn.Sequential(nn.Conv2d(1, 8, 3), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for layer in model[:-2]:
        if isinstance(layer, nn.Conv2d):
            nn.init.uniform_(layer.weight, 0.0, 0.6)
    x = torch.rand(1, 1, 12, 12).half()
    image = invert.reconstruct(model.half(), x * 1e-3, "12")
    assert torch.isfinite(image).all()
    assert image.max() > 65504
    assert torch.isfinite(invert.correlation(image, x)).all()


def test_a_flat_image_in_float16():
    assert invert.correlation(torch.zeros(1, 1, 4, 4).half(), torch.rand(1, 1, 4, 4).half()).item() == 0


def test_blur_in_half_precision():
    x = torch.rand(1, 3, 16, 16)
    for dtype in HALVES:
        from bort.measure._substrate import substrate

        blurred = substrate(x.to(dtype), "blur")
        assert blurred.dtype == dtype
        torch.testing.assert_close(blurred, substrate(x.to(dtype).float(), "blur").to(dtype), rtol=0, atol=0)


def test_overflow_is_said():
    """Logits that float16 cannot hold."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).half()
    nn.init.constant_(model[1].weight, 6e4)
    with pytest.raises(ValueError, match=r"outputs have NaN or Inf for 1 of 1 images: .* too large for torch.float16"):
        explain.rise(model, torch.ones(1, 1, 4, 4).half(), masks=4)


def test_a_model_that_cannot_be_copied():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten()).half()
    model.cached = model[0].weight * 1  # torch copies no tensor with a graph
    with pytest.raises(ValueError, match=r"a copy in float32, which cannot be made: .*Give the model in float32"):
        explain.integrated_gradients(model, torch.rand(1, 1, 4, 4).half(), steps=2)


def test_other_precisions_are_left_alone():
    for dtype in (torch.float32, torch.float64):
        model = network().to(dtype)
        assert precise(model) is model
