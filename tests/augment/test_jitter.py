"""Colour jitter against torchvision's functions on PIL images."""

import itertools

import pytest
import torch
from scipy import stats
from torchvision.transforms import functional

from bort.augment import image_keys
from bort.augment._draws import Stream, uniform
from bort.augment._jitter import JITTER_DRAWS, jittered
from tests.augment.pictures import from_pil, natural, special, to_pil

CHANGES = (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation)


@pytest.mark.parametrize("strength", [0.3, 0.4, 1.5])
def test_is_torchvisions(strength):
    """All six orders, exactly."""
    images = torch.cat((natural(6, 20, 30), special(20, 30)))
    u = uniform(image_keys(2, torch.arange(len(images))), Stream.JITTER, JITTER_DRAWS)
    orders = torch.tensor(list(itertools.permutations(range(3)))).repeat(2, 1)
    u[:, 3:] = orders.argsort(1) / 4
    low = max(0.0, 1 - strength)
    factors = low + (1 + strength - low) * u[:, :3]
    for image, order, factor, result in zip(images, orders, factors, jittered(images, u, strength)):
        expected = to_pil(image)
        for change in order:
            expected = CHANGES[change](expected, factor[change].item())
        assert torch.equal(result, from_pil(expected))


def test_orders_are_equally_likely():
    """Factors of 0 tell which change was the last: black, the flat mean, or grey."""
    image = natural(1, 8, 8)
    u = uniform(image_keys(2, torch.arange(6000)), Stream.JITTER, JITTER_DRAWS)
    order = u[:, 3:].argsort(1)
    counts = torch.bincount(order @ torch.tensor([9, 3, 1]))
    assert stats.chisquare(counts[counts > 0].numpy()).pvalue > 1e-3
    assert (counts > 0).sum() == 6
    u[:, :3] = 0
    results = jittered(image.expand(20, -1, -1, -1).contiguous(), u[:20], 1.0)
    assert all(not result.any() for result in results)  # brightness 0 makes black, and the others keep it
