"""Random numbers from keys: the published generator, and as random as they must be."""

import numpy as np
import pytest
import torch
from scipy import stats

from bort.augment import image_keys
from bort.augment._draws import Stream, normal, randint, uniform, uniforms, view_keys

COUNT = 2**15


def splitmix64(state):
    """In Python's own integers."""
    z = state % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_the_generator_is_splitmix64():
    """Its first numbers for the seed 1234567, as published with it."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [key % 2**64 for key in image_keys(1234567, torch.arange(1, 4)).tolist()] == published


@pytest.mark.parametrize("base", [0, 5, 2**63 - 1])
def test_keys_and_numbers_wrap_as_in_64_bits(base):
    golden = 0x9E3779B97F4A7C15
    index = torch.tensor([0, 1, 17, 2**40])
    keys = image_keys(base, index)
    assert [key % 2**64 for key in keys.tolist()] == [splitmix64(base + i * golden) for i in index.tolist()]
    expected = [
        [(splitmix64(key + (Stream.ERASE * 2**16 + column) * golden) >> 40) / 2**24 for column in range(3)]
        for key in keys.tolist()
    ]
    assert uniform(keys, Stream.ERASE, 3).tolist() == expected
    assert torch.equal(image_keys(torch.tensor(base), index), keys)


def test_streams_do_not_depend_on_each_other():
    keys = image_keys(1, torch.arange(10))
    alone = uniform(keys, Stream.ERASE, 4)
    together = uniforms(keys, {Stream.RANDAUGMENT: 9, Stream.ERASE: 6})
    assert torch.equal(together[Stream.ERASE][:, :4], alone)
    assert together[Stream.RANDAUGMENT].shape == (10, 9)


def test_views_have_keys_of_their_own():
    keys = image_keys(1, torch.arange(50))
    views = view_keys(keys, 0, 3)
    assert torch.equal(views[:50], keys)
    assert torch.equal(views[50:], view_keys(keys, 1, 2))
    assert len(views.unique()) == 150


def neighbours():
    """Pairs of samples that must be independent."""
    index = torch.arange(COUNT)
    keys = image_keys(1000, index)
    numbers = uniform(keys, Stream.CROP, 2)
    yield "columns", numbers[:, 0], numbers[:, 1]
    yield "images", numbers[:-1, 0], numbers[1:, 0]
    yield "epochs", numbers[:, 0], uniform(image_keys(1001, index), Stream.CROP, 1)[:, 0]
    yield "streams", numbers[:, 0], uniform(keys, Stream.RANDAUGMENT, 1)[:, 0]
    yield "views", numbers[:, 0], uniform(view_keys(keys, 1, 1), Stream.CROP, 1)[:, 0]


@pytest.mark.parametrize(("name", "a", "b"), [pytest.param(*pair, id=pair[0]) for pair in neighbours()])
def test_neighbours_are_independent(name, a, b):
    """Equal numbers in each of 16 × 16 boxes of the unit square, and no correlation."""
    counts, *_ = np.histogram2d(a.numpy(), b.numpy(), bins=16, range=[[0, 1], [0, 1]])
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / COUNT**0.5


def test_every_bit_is_set_half_of_the_time_and_alone():
    numbers = (uniform(image_keys(7, torch.arange(COUNT)), Stream.CROP, 1)[:, 0] * 2**24).long()
    bits = torch.stack([(numbers >> place) & 1 for place in range(24)]).double()
    assert ((bits.mean(1) - 0.5).abs() < 4 * 0.5 / COUNT**0.5).all()
    correlations = torch.corrcoef(bits) - torch.eye(24, dtype=torch.float64)
    assert correlations.abs().max() < 4.5 / COUNT**0.5


@pytest.mark.parametrize("count", [1, 2, 15, 449])
def test_whole_numbers_are_equally_likely(count):
    drawn = randint(uniform(image_keys(3, torch.arange(COUNT)), Stream.CROP, 1)[:, 0], count)
    counts = torch.bincount(drawn.long(), minlength=count)
    assert len(counts) == count
    assert count == 1 or stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_the_largest_number_gives_the_largest_whole_one():
    largest = torch.tensor(1 - 2.0**-24, dtype=torch.float64)
    for count in range(1, 5000):
        assert randint(largest, count) == count - 1


def test_normal_numbers():
    drawn = normal(uniform(image_keys(4, torch.arange(COUNT)), Stream.CROP, 1)[:, 0])
    assert stats.kstest(drawn.numpy(), "norm").pvalue > 1e-3
    assert normal(torch.tensor([0.0, 1 - 2.0**-24], dtype=torch.float64)).isfinite().all()
