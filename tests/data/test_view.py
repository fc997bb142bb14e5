"""How a network sees an image, against timm's evaluation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bort.data import View

side = st.integers(3, 300)


@settings(max_examples=60, deadline=None)
@given(
    width=side,
    height=side,
    size=st.sampled_from([28, 32, 64, 100]),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
)
def test_it_is_timms_to_the_bit(width, height, size, channels, seed):
    timm = pytest.importorskip("timm.data")
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert("L" if channels == 1 else "RGB")
    view = View(size, channels, (0.48, 0.13, 0.4)[:channels], (0.3, 0.22, 0.25)[:channels])
    cut = 1.0 if min(width, height) <= size else 0.875
    expected = timm.create_transform((channels, size, size), crop_pct=cut, mean=view.mean, std=view.std)(image)
    assert torch.equal(view(image), expected[None])


@settings(max_examples=60, deadline=None)
@given(
    width=side,
    height=side,
    size=st.sampled_from([(28, 56), (64, 32), (30, 31), (32, 32)]),
    crop=st.sampled_from([0.875, 0.95, 1.0]),
    bicubic=st.booleans(),
)
def test_oblong_inputs_and_other_crops_are_timms_too(width, height, size, crop, bicubic):
    interpolation = "bicubic" if bicubic and size[0] == size[1] else "bilinear"  # timm's is bilinear if oblong, always
    timm = pytest.importorskip("timm.data")
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    view = View(size, 3, (0.48, 0.13, 0.4), (0.3, 0.22, 0.25), (), crop, interpolation)
    cut = 1.0 if height <= size[0] or width <= size[1] else crop
    how = {"crop_pct": cut, "interpolation": interpolation}
    expected = timm.create_transform((3, *size), **how, mean=view.mean, std=view.std)(Image.fromarray(pixels))
    assert torch.equal(view(Image.fromarray(pixels)), expected[None])
    assert (view.height, view.width) == size


def test_image_files_have_one_or_three_channels():
    with pytest.raises(ValueError, match="sees 5 channels, an image file has 1 or 3: give its images as a tensor"):
        View(8, 5, (0.5,) * 5, (0.5,) * 5)(Image.new("RGB", (8, 8)))


def test_without_a_crop_the_image_is_squeezed():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 50, 3), dtype=np.uint8)
    view = View((16, 8), 3, (0.0,) * 3, (1.0,) * 3, crop_part=None)
    expected = np.array(Image.fromarray(pixels).resize((8, 16), Image.Resampling.BILINEAR))
    assert torch.equal(view.crop(Image.fromarray(pixels)), torch.from_numpy(expected).permute(2, 0, 1))


def test_names_of_classes():
    view = View(8, 1, (0.5,), (0.5,), ("zero", "one"))
    assert [view.name(label) for label in (0, 1, 2, -1)] == ["zero", "one", "2", ""]


def test_pixels_and_back():
    """Normalising pixels is what the view does to bytes, and the inverse of asking for pixels, in every type."""
    view = View(5, 3, (0.48, 0.13, 0.4), (0.3, 0.22, 0.25))
    levels = torch.randint(256, (2, 3, 5, 5), dtype=torch.uint8)
    assert torch.equal(view.normalised(levels.float() / 255), view.normaliser("cpu")(levels))
    pixels = levels.double() / 255
    torch.testing.assert_close(view.pixels(view.normalised(pixels)), pixels)
    assert view.normalised(pixels).dtype == torch.float64
