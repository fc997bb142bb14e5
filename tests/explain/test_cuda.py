"""On a GPU the same comes out as on a CPU: explanations, inversions, measurements."""

import copy

import pytest
import torch
from torch import nn

from bort import explain, invert, measure
from tests.explain.test_methods import QUICK
from tests.functions import FUNCTIONS, architectures

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def there(net):
    return copy.deepcopy(net).cuda()


@pytest.mark.parametrize("name", QUICK)
def test_explanations(net, there, x, name):
    if name == "xrai":
        pytest.importorskip("skimage")
    maps = explain.get(name)(there, x.cuda(), torch.tensor([1, 2, 3]), **QUICK[name])
    assert maps.is_cuda
    expected = explain.get(name)(net, x, torch.tensor([1, 2, 3]), **QUICK[name])
    torch.testing.assert_close(maps.cpu(), expected, rtol=1e-6, atol=1e-9)


def test_inversions(net, there, x):
    for k in (None, 3):
        image = invert.reconstruct(there, x.cuda(), "conv5", k).cpu()
        torch.testing.assert_close(image, invert.reconstruct(net, x, "conv5", k), rtol=1e-6, atol=1e-9)
    one, other = (invert.decompose(m, i, "conv5", 3) for m, i in ((there, x.cuda()), (net, x)))
    assert torch.equal(one.channels.cpu(), other.channels)
    torch.testing.assert_close(one.signals.cpu(), other.signals, rtol=1e-6, atol=1e-9)
    one, other = (invert.synthesize(m, i, i.flip(0), "conv5", 3) for m, i in ((there, x.cuda()), (net, x)))
    torch.testing.assert_close(one.images.cpu(), other.images, rtol=1e-6, atol=1e-9)
    assert torch.equal(one.map_verdicts.cpu(), other.map_verdicts)


def test_measurements(net, there, x):
    maps = torch.rand(3, 28, 28)
    one, other = (measure.all_scores(m, i, maps) for m, i in ((there, x.cuda()), (net, x)))
    for score, curves in one.items():
        torch.testing.assert_close(curves.insertion_curves.cpu(), other[score].insertion_curves, rtol=1e-6, atol=1e-9)
    for layer, expected in zip(measure.audit(there, x.cuda()), measure.audit(net, x), strict=True):
        assert layer.ratio == pytest.approx(expected.ratio)
        assert layer.cosine == pytest.approx(expected.cosine)
        assert layer.sigma == pytest.approx(expected.sigma)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_half_precision(name, dtype):
    """Finite, and in float32; gradients as on a CPU, where they are those of float32 too."""
    if name == "xrai":
        pytest.importorskip("skimage")
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    here = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 4)).to(dtype)
    x = architectures.images(2, (3, 24, 40)).to(dtype)
    result = FUNCTIONS[name].call(copy.deepcopy(here).cuda(), x.cuda())
    assert torch.isfinite(result).all()
    if name in ("reconstruct", "cam", "ig"):
        assert result.is_cuda
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.cpu(), FUNCTIONS[name].call(here, x), rtol=1e-2, atol=1e-3)


def test_channels_last_maps():
    """torchvision's Swin on images that are not square: the layout is found by a pass on the GPU."""
    models = pytest.importorskip("torchvision").models
    torch.manual_seed(0)
    net = models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=3).double().eval()
    x = torch.randn(1, 3, 32, 64, dtype=torch.float64)
    layers = explain.map_layers(copy.deepcopy(net).cuda(), x.cuda())
    assert layers == explain.map_layers(net, x)
    maps = explain.cam(copy.deepcopy(net).cuda(), x.cuda(), 1).cpu()
    torch.testing.assert_close(maps, explain.cam(net, x, 1), rtol=1e-6, atol=1e-9)


def test_several_labels(net, there, x):
    maps = [explain.rise(m, i, 1, masks=24, cells=4, multi_label=True) for m, i in ((there, x.cuda()), (net, x))]
    torch.testing.assert_close(maps[0].cpu(), maps[1], rtol=1e-6, atol=1e-9)


def test_wrong_device(net, x):
    with pytest.raises(ValueError, match="the input is on cuda:0, the model on cpu"):
        explain.sat(net, x.cuda())
    trace = invert.Backtracker(copy.deepcopy(net).cuda(), "conv5").trace(x.cuda())
    with pytest.raises(ValueError, match="the seed is on cpu"):
        trace(trace.features.cpu())
