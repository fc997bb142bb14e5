"""XRAI: parity with PAIR's saliency, worker processes, and progress in parts."""

import multiprocessing

import numpy as np
import pytest
import torch

from bort import explain, nets
from bort.explain import _xrai
from bort.explain._xrai import Meter
from tests.explain.test_regions import attributions, picture

core = pytest.importorskip("saliency.core.xrai")


def test_the_whole_method_is_pairs():
    """With the same attributions, image by image."""
    net = nets.create("timm/resnet18", classes=3, image_size=64).double()
    x = torch.stack([picture(3, 64, 64, seed) for seed in range(2)])
    values = torch.stack([attributions(64, 64, seed) for seed in range(2)])
    maps = explain.xrai(net, x, attributions=values)
    for image, value, saliency in zip(x, values, maps, strict=True):
        pixels = image.permute(1, 2, 0).numpy()
        base = value[..., None].expand(64, 64, 3).numpy()
        np.testing.assert_allclose(
            saliency, core.XRAI().GetMask(pixels, None, base_attribution=base), rtol=1e-9, atol=1e-12
        )


@pytest.mark.slow
def test_with_workers():
    net = nets.create("lenet", channels=1)
    x = torch.stack([picture(1, 28, 28, seed).float() for seed in range(3)])
    values, calls = torch.stack([attributions(28, 28, seed) for seed in range(3)]), []
    maps = explain.xrai(net, x, attributions=values, workers=1, progress=lambda *call: calls.append(call))
    assert torch.equal(maps, explain.xrai(net, x, attributions=values))
    assert calls == [(16, 48), (32, 48), (48, 48)]

    def stop(done, total):
        raise explain.Cancelled

    before = set(multiprocessing.active_children())  # other tests' own
    with pytest.raises(explain.Cancelled):
        explain.xrai(net, x, attributions=values, workers=1, progress=stop)
    assert set(multiprocessing.active_children()) <= before
    with pytest.raises(ValueError, match="workers=-1"):
        explain.xrai(net, x, workers=-1)


def test_several_images_in_a_call(monkeypatch):
    """As on a GPU: the maps are those of the images one by one, each from its own black and white."""
    net = nets.create("lenet", channels=1).double()
    x = torch.stack([picture(1, 28, 28, seed) * (1 + seed) for seed in range(3)])
    one_by_one = explain.xrai(net, x, [3, 0, 7], steps=5)
    monkeypatch.setattr(_xrai, "images_in_a_call", lambda x: 2)
    calls = []
    together = explain.xrai(net, x, [3, 0, 7], steps=5, progress=lambda *call: calls.append(call))
    torch.testing.assert_close(together, one_by_one, rtol=1e-9, atol=1e-12)
    assert calls[-1][0] == calls[-1][1]
    assert calls == sorted(calls)


def test_a_flat_image():
    net = nets.create("lenet").double()
    maps = explain.xrai(net, torch.full((1, 1, 28, 28), 0.3, dtype=torch.float64), steps=3)
    assert torch.isfinite(maps).all()


def test_attributions_or_steps():
    net, x = nets.create("lenet"), torch.rand(1, 1, 28, 28)
    with pytest.raises(ValueError, match="steps=5: with attributions given"):
        explain.xrai(net, x, steps=5, attributions=torch.rand(1, 28, 28))
    with pytest.raises(ValueError, match="the attributions have NaN"):
        explain.xrai(net, x, attributions=torch.full((1, 28, 28), torch.nan))


def test_bad_options():
    net, x = nets.create("lenet"), torch.rand(1, 1, 28, 28)
    with pytest.raises(ValueError, match="dilation=-1"):
        explain.xrai(net, x, dilation=-1)
    with pytest.raises(ValueError, match=r"attributions of shape \(28, 28\): they must be \(1, 28, 28\)"):
        explain.xrai(net, x, attributions=torch.rand(28, 28))


def test_a_meter_of_several_parts():
    calls = []
    meter = Meter(lambda *call: calls.append(call), 7)
    first, second = meter.part(3), meter.part(4)
    for done in (1, 2):
        first(done, 2)
    for done in (10, 35, 40):
        second(done, 40)
    assert calls == [(1, 7), (3, 7), (4, 7), (6, 7), (7, 7)]
    assert Meter(None, 7).part(3) is None
