"""On a GPU the same comes out as on a CPU: explanations, inversions, measurements."""

import copy

import pytest
import torch

from bort import explain, invert, measure
from tests.explain.test_methods import QUICK

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


def test_wrong_device(net, x):
    with pytest.raises(ValueError, match="the input is on cuda:0, the model on cpu"):
        explain.sat(net, x.cuda())
    trace = invert.Backtracker(copy.deepcopy(net).cuda(), "conv5").trace(x.cuda())
    with pytest.raises(ValueError, match="the seed is on cpu"):
        trace(trace.features.cpu())
