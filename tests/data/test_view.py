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


def test_pixels_and_back():
    """Normalising pixels is what the view does to bytes, and the inverse of asking for pixels, in every type."""
    view = View(5, 3, (0.48, 0.13, 0.4), (0.3, 0.22, 0.25))
    levels = torch.randint(256, (2, 3, 5, 5), dtype=torch.uint8)
    assert torch.equal(view.normalised(levels.float() / 255), view.normaliser("cpu")(levels))
    pixels = levels.double() / 255
    torch.testing.assert_close(view.pixels(view.normalised(pixels)), pixels)
    assert view.normalised(pixels).dtype == torch.float64
