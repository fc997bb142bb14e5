"""Intervals, against scipy's, published examples, and how often they contain the truth."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bort._intervals import difference_of_parts, mean, part


@given(st.integers(1, 2000), st.data())
def test_a_part_is_scipys_wilson(count, data):
    successes = data.draw(st.integers(0, count))
    expected = stats.binomtest(successes, count).proportion_ci(0.95, method="wilson")
    interval = part(successes, count)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=40).filter(lambda values: max(values) - min(values) > 1e-3))
def test_a_mean_is_scipys_student(values):
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    interval = mean(torch.tensor(values))
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-4)


def test_one_value_has_no_interval():
    assert mean(torch.tensor([0.3])) is None


def answers(both, only_one, only_other, neither):
    ones = torch.tensor([True] * (both + only_one) + [False] * (only_other + neither))
    others = torch.tensor(([True] * both + [False] * only_one) + ([True] * only_other + [False] * neither))
    return ones, others


@pytest.mark.parametrize(
    ("table", "low", "high"),
    [
        (
            (1, 7, 1, 12),
            -0.507,
            -0.026,
        ),  # Bentur et al. 2009, in Fagerland, Lydersen and Laake, Statistical analysis of
        ((59, 16, 6, 80), -0.1186, -0.0046),  # Cavo et al. 2012, contingency tables, chapter 8
        ((20, 12, 2, 16), -0.3292, -0.0562),  # Newcombe 1998
    ],
)
def test_published_differences(table, low, high):
    interval = difference_of_parts(*answers(*table))
    digits = len(str(high).partition(".")[2])
    assert (round(interval.low, digits), round(interval.high, digits)) == (low, high)


@given(st.lists(st.integers(0, 30), min_size=4, max_size=4).filter(any))
def test_a_difference_turns_its_sign_with_its_sides(table):
    ones, others = answers(*table)
    there, back = difference_of_parts(ones, others), difference_of_parts(others, ones)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))
    assert there.low <= others.double().mean() - ones.double().mean() <= there.high


@pytest.mark.parametrize("truth", [(0.6, 0.1, 0.1, 0.2), (0.9, 0.02, 0.05, 0.03), (0.25, 0.25, 0.25, 0.25)])
def test_a_difference_is_covered_as_often_as_it_says(truth):
    """Exactly: the sum over all tables of 30 images. Where nearly all answers are right the interval is on the safe side."""
    count, difference, covered = 30, truth[2] - truth[1], 0.0
    for both, only_one, only_other in itertools.product(range(count + 1), repeat=3):
        neither = count - both - only_one - only_other
        if neither < 0:
            continue
        table = both, only_one, only_other, neither
        interval = difference_of_parts(*answers(*table))
        if interval.low <= difference <= interval.high:
            covered += math.exp(stats.multinomial.logpmf(table, count, truth))
    assert 0.94 < covered < 0.998


def test_two_that_are_always_right():
    """Neither has a mistake to be correlated with: Wilson's z²/(n + z²) on both sides."""
    interval, z = difference_of_parts(*answers(5, 0, 0, 0)), stats.norm.ppf(0.975)
    assert (interval.low, interval.high) == pytest.approx((-(z**2) / (5 + z**2), z**2 / (5 + z**2)))
