"""XRAI's segments and greedy growth: parity with PAIR's saliency."""

import numpy as np
import pytest
import skimage.segmentation
import torch

from bort.explain._regions import grow, segments

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
    masks = segments(image, dilation)
    assert len(masks) == len(expected)
    for mask, theirs in zip(masks, expected, strict=True):
        assert np.array_equal(mask.numpy(), theirs)


@pytest.mark.parametrize(("height", "width", "min_pixels"), [(64, 64, 50), (28, 28, 50), (48, 64, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_growth_is_pairs(height, width, min_pixels, seed):
    masks = segments(picture(3, height, width, seed), 5)
    values = attributions(height, width, seed)
    expected, _ = core.XRAI._xrai(values.numpy(), list(masks.numpy()), min_pixel_diff=min_pixels)
    np.testing.assert_allclose(grow(values, masks, min_pixels), expected, rtol=1e-9, atol=1e-12)


def test_by_hand():
    """Two regions: the better one comes first, and pixels of no region share their mean."""
    values = torch.tensor([[3.0, 1.0, 0.0], [1.0, 2.0, 6.0]], dtype=torch.float64)
    masks = torch.tensor([[[1, 1, 0], [1, 0, 0]], [[0, 1, 0], [0, 1, 0]]]).bool()
    expected = [[5 / 3, 5 / 3, 3.0], [5 / 3, 2.0, 3.0]]
    np.testing.assert_allclose(grow(values, masks, 1), expected)


def test_an_image_is_cut_once(monkeypatch):
    """Also if the first time ended in the middle; another dilation needs no other segments."""
    calls = []
    original = skimage.segmentation.felzenszwalb
    monkeypatch.setattr(skimage.segmentation, "felzenszwalb", lambda *a, **k: calls.append(a) or original(*a, **k))
    image = picture(1, 20, 20, seed=7)

    def stop(done, total):
        if done == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        segments(image, 3, stop)
    steps = []
    masks = segments(image, 3, lambda *step: steps.append(step))
    before = len(calls)
    assert torch.equal(segments(image.clone(), 3), masks)
    assert len(segments(image, 0)) == len(masks)
    assert len(calls) == before
    segments(image + 1e-3 * torch.rand_like(image), 3)
    assert len(calls) == before + 6, "another image"
    assert steps == [(done, 6) for done in range(1, 7)]
