"""Random erasing: boxes as timm draws them, noise of the right distribution that depends on the key alone."""

import random

import numpy as np
import pytest
import torch
from scipy import stats
from timm.data.random_erasing import RandomErasing

from bort.augment import image_keys
from bort.augment._draws import Stream, uniform
from bort.augment._erase import ERASE_DRAWS, NOISE, _noise, erase

COUNT = 3000


def erased(count, probability, height=32, width=32, base=1, channels=1):
    """Images of 1000s, erased."""
    images = torch.full((count, channels, height, width), 1000.0)
    erase(images, uniform(image_keys(base, torch.arange(count)), Stream.ERASE, ERASE_DRAWS), probability)
    return images


def boxes(images):
    """Top, left, height and width of the erased boxes."""
    found = []
    for image in images:
        rows, columns = (image[0] < 500).any(1).nonzero(), (image[0] < 500).any(0).nonzero()
        if len(rows):
            found.append([int(v) for v in (rows[0], columns[0], rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1)])
    return np.array(found).T


@pytest.mark.parametrize(("height", "width"), [(32, 32), (20, 48)])
def test_boxes_are_distributed_as_timms(height, width):
    ours = boxes(erased(COUNT, 1.0, height, width))
    random.seed(0)
    images = torch.full((COUNT, 1, height, width), 1000.0)
    theirs = boxes(RandomErasing(1.0, mode="pixel", device="cpu")(images))
    for measure in (
        lambda top, left, tall, wide: tall * wide,
        lambda top, left, tall, wide: wide / tall,
        lambda top, left, tall, wide: top / (height - tall),
        lambda top, left, tall, wide: left / (width - wide),
    ):
        assert stats.ks_2samp(measure(*ours), measure(*theirs)).pvalue > 1e-3
    assert abs(ours.shape[1] - theirs.shape[1]) <= 0.01 * COUNT  # ten attempts may fail


def test_an_erased_part_is_a_whole_box_in_all_channels():
    for image in erased(50, 1.0, channels=3):
        inside = image < 500
        rows, columns = inside[0].any(1), inside[0].any(0)
        assert torch.equal(inside, (rows[:, None] & columns).expand_as(inside))


@pytest.mark.parametrize("probability", [0.25, 0.6])
def test_images_are_erased_with_the_probability(probability):
    count = int((erased(COUNT, probability) < 500).flatten(1).any(1).sum())
    assert stats.binomtest(count, COUNT, probability).pvalue > 1e-3


def test_noise_is_normal():
    images = erased(500, 1.0)
    noise = images[images < 500].numpy()
    assert len(noise) > 50_000
    assert stats.kstest(noise[:50_000], "norm").pvalue > 1e-3
    assert _noise(torch.device("cpu")).shape == (NOISE,)


def test_noise_is_each_images_own():
    """Boxes at the same place in two images, with different noise."""
    u = uniform(image_keys(1, torch.arange(2)), Stream.ERASE, ERASE_DRAWS)
    u[1, :-1] = u[0, :-1]
    images = torch.full((2, 3, 32, 32), 1000.0)
    erase(images, u, 1.0)
    inside = images < 500
    assert torch.equal(inside[0], inside[1])
    assert (images[0] != images[1])[inside[0]].all()


def test_the_layout_does_not_matter():
    u = uniform(image_keys(1, torch.arange(4)), Stream.ERASE, ERASE_DRAWS)
    images = torch.randn(4, 3, 16, 16)
    other = images.contiguous(memory_format=torch.channels_last)
    erase(images, u, 1.0)
    erase(other, u, 1.0)
    assert torch.equal(images, other)
    assert other.is_contiguous(memory_format=torch.channels_last)
