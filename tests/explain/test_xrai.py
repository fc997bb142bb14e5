"""XRAI: parity with PAIR's saliency in its segments and in its greedy growth."""

import multiprocessing

import numpy as np
import pytest
import torch

from bort import explain, nets
from bort.explain._xrai import grow, segments

core = pytest.importorskip("saliency.core.xrai")


def picture(channels, height, width, seed=0):
    """Smooth blobs, so that there is something to segment."""
    noise = torch.randn(1, channels, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.interpolate(noise, (height, width), mode="bicubic", align_corners=False)[0]


def attributions(height, width, seed=0):
    return torch.randn(height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 224, 224), (1, 28, 28), (3, 48, 64)])
@pytest.mark.parametrize("dilation", [0, 5])
def test_segments_are_pairs(channels, height, width, dilation):
    image = picture(channels, height, width)
    expected = core._get_segments_felzenszwalb(image.permute(1, 2, 0).numpy(), dilation_rad=dilation)
    found = segments(image, dilation)
    assert len(found) == len(expected)
    for mask, wanted in zip(found, expected, strict=True):
        assert np.array_equal(mask.numpy(), wanted)


@pytest.mark.parametrize(("height", "width", "min_pixels"), [(64, 64, 50), (28, 28, 50), (48, 64, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_growth_is_pairs(height, width, min_pixels, seed):
    masks = segments(picture(3, height, width, seed), 5)
    values = attributions(height, width, seed)
    expected, _ = core.XRAI._xrai(values.numpy(), list(masks.numpy()), min_pixel_diff=min_pixels)
    np.testing.assert_allclose(grow(values, masks, min_pixels), expected, rtol=1e-9, atol=1e-12)


def test_the_whole_method_is_pairs():
    """With the same attributions, image by image."""
    net = nets.create("timm/resnet18", classes=3, image_size=64).double()
    x = torch.stack([picture(3, 64, 64, seed) for seed in range(2)])
    values = torch.stack([attributions(64, 64, seed) for seed in range(2)])
    maps = explain.xrai(net, x, attributions=values)
    for image, value, found in zip(x, values, maps, strict=True):
        pixels = image.permute(1, 2, 0).numpy()
        base = value[..., None].expand(64, 64, 3).numpy()
        np.testing.assert_allclose(
            found, core.XRAI().GetMask(pixels, None, base_attribution=base), rtol=1e-9, atol=1e-12
        )


@pytest.mark.slow
def test_with_workers():
    net = nets.create("lenet", channels=1)
    x = torch.stack([picture(1, 28, 28, seed).float() for seed in range(3)])
    values, seen = torch.stack([attributions(28, 28, seed) for seed in range(3)]), []
    maps = explain.xrai(net, x, attributions=values, workers=1, progress=lambda *call: seen.append(call))
    assert torch.equal(maps, explain.xrai(net, x, attributions=values))
    assert seen == [(16, 48), (32, 48), (48, 48)]

    def stop(done, total):
        raise explain.Cancelled

    before = set(multiprocessing.active_children())  # other tests' own
    with pytest.raises(explain.Cancelled):
        explain.xrai(net, x, attributions=values, workers=1, progress=stop)
    assert set(multiprocessing.active_children()) <= before
    with pytest.raises(ValueError, match="workers=-1"):
        explain.xrai(net, x, workers=-1)


def test_by_hand():
    """Two regions: the better one comes first, and pixels of no region share their mean."""
    values = torch.tensor([[3.0, 1.0, 0.0], [1.0, 2.0, 6.0]], dtype=torch.float64)
    masks = torch.tensor([[[1, 1, 0], [1, 0, 0]], [[0, 1, 0], [0, 1, 0]]]).bool()
    found = grow(values, masks, 1)
    expected = [[5 / 3, 5 / 3, 3.0], [5 / 3, 2.0, 3.0]]
    np.testing.assert_allclose(found, expected)


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
