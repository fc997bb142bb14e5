"""Noise, blur and JPEG, against statistics, scipy and PIL."""

import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from scipy import ndimage

from bort import measure


@pytest.fixture
def pixels():
    return torch.rand(3, 3, 20, 17, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_noise_has_its_deviation():
    grey = torch.full((40, 3, 32, 32), 0.5)
    for deviation in (0.04, 0.08, 0.12):
        noise = measure.corrupted(grey, f"noise {deviation}") - 0.5
        assert noise.std().item() == pytest.approx(deviation, rel=0.02)
        assert abs(noise.mean().item()) < 4 * deviation / noise.numel() ** 0.5
        neighbours = torch.corrcoef(torch.stack([noise[..., 1:].flatten(), noise[..., :-1].flatten()]))[0, 1]
        between = torch.corrcoef(noise.flatten(1))
        assert abs(neighbours) < 0.02
        assert (between - torch.eye(40)).abs().max() < 0.1, "each image has its own"


def test_noise_is_cut_off_at_0_and_1():
    noisy = measure.corrupted(torch.tensor([0.0, 1.0]).repeat(1, 1, 8, 4), "noise 0.1")
    assert noisy.min() == 0
    assert noisy.max() == 1
    assert ((noisy > 0) & (noisy < 1)).float().mean().item() == pytest.approx(0.5, abs=0.2)


def test_noise_depends_on_the_seed_and_the_place_alone(pixels):
    noisy = measure.corrupted(pixels, "noise 0.08")
    assert torch.equal(noisy, measure.corrupted(pixels, "noise 0.08"))
    assert torch.equal(noisy[:2], measure.corrupted(pixels[:2], "noise 0.08"))
    assert not torch.equal(noisy, measure.corrupted(pixels, "noise 0.08", seed=1))
    torch.manual_seed(5)
    state = torch.get_rng_state()
    measure.corrupted(pixels, "noise 0.08")
    assert torch.equal(state, torch.get_rng_state()), "the program's own random numbers are left alone"


@pytest.mark.parametrize("deviation", [0.5, 1.0, 1.5, 4.0])
def test_blur_is_scipys(pixels, deviation):
    """4.0 reaches further than the image is wide."""
    expected = ndimage.gaussian_filter(pixels.numpy(), deviation, axes=(2, 3), mode="nearest")
    np.testing.assert_allclose(measure.corrupted(pixels, f"blur {deviation}"), expected, atol=1e-12)


def test_blur_is_nearly_pils():
    """PIL rounds to bytes and repeats a box filter instead; inside an image they agree to a few levels."""
    smooth = ndimage.gaussian_filter(np.random.default_rng(0).random((40, 40)), 1.0)
    image = Image.fromarray((255 * (smooth - smooth.min()) / np.ptp(smooth)).round().astype(np.uint8))
    expected = np.array(image.filter(ImageFilter.GaussianBlur(1.5)), dtype=float)
    blurred = measure.corrupted(torch.from_numpy(np.array(image))[None, None] / 255, "blur 1.5")[0, 0] * 255
    np.testing.assert_allclose(blurred[6:-6, 6:-6], expected[6:-6, 6:-6], atol=6)


def test_blur_keeps_a_flat_image_and_stays_in_range():
    white = torch.ones(1, 3, 9, 9)
    for deviation in (0.5, 1.0, 1.5):
        blurred = measure.corrupted(white, f"blur {deviation}")
        assert blurred.max() <= 1
        torch.testing.assert_close(blurred, white)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("quality", [50, 25, 10])
def test_jpeg_is_pils(pixels, channels, quality):
    compressed = measure.corrupted(pixels[:, :channels].float(), f"jpeg {quality}")
    for image, result in zip(pixels[:, :channels], compressed, strict=True):
        levels = np.rint(image.float().permute(1, 2, 0).numpy() * np.float32(255)).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(levels[..., 0] if channels == 1 else levels).save(file, format="JPEG", quality=quality)
        decoded = np.asarray(Image.open(file), dtype=np.float32).reshape(levels.shape) / 255
        assert np.array_equal(result.permute(1, 2, 0), decoded)
    assert compressed.dtype == torch.float32


def test_worse_quality_is_further_from_the_image(pixels):
    distances = [(measure.corrupted(pixels, f"jpeg {q}") - pixels).square().mean() for q in (95, 50, 25, 10)]
    assert distances == sorted(distances)


def test_no_strength_changes_nothing(pixels):
    for kind in ("clean", "noise 0", "blur 0"):
        assert torch.equal(measure.corrupted(pixels, kind), pixels)


@pytest.mark.parametrize("kind", measure.CORRUPTIONS[:9])
def test_what_is_given_is_left_as_it_was(pixels, kind):
    copy = pixels.clone()
    result = measure.corrupted(pixels, kind)
    assert torch.equal(copy, pixels)
    assert result.shape == pixels.shape
    assert result.dtype == pixels.dtype
    assert result.min() >= 0
    assert result.max() <= 1
    assert not torch.equal(result, pixels)


@pytest.mark.parametrize(
    "kind", ["fog 1", "noise", "noise -1", "noise much", "jpeg 0", "jpeg 12.5", "fgsm 1/0", "blur nan"]
)
def test_unknown_corruptions(pixels, kind):
    with pytest.raises(ValueError, match=f"'{kind}' is not a corruption"):
        measure.corrupted(pixels, kind)


def test_mistakes(pixels):
    with pytest.raises(ValueError, match="from 0 to 1"):
        measure.corrupted(2 * pixels, "blur 1")
    with pytest.raises(ValueError, match="from 0 to 1"):
        measure.corrupted(pixels[0], "blur 1")
    with pytest.raises(ValueError, match="JPEG has 1 or 3 channels, these images have 2"):
        measure.corrupted(pixels[:, :2], "jpeg 50")
    with pytest.raises(ValueError, match="fgsm depends on the network"):
        measure.corrupted(pixels, "fgsm 2/255")
