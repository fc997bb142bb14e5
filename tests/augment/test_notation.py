"""timm's notation of RandAugment: the same meaning as in timm, and errors that name the part."""

import math

import pytest
from timm.data import auto_augment

from bort.augment._notation import INCREASING, PLAIN, parse


@pytest.mark.parametrize(
    "notation",
    [
        *("rand", "rand-m9-mstd0.5", "rand-m7-mstd0.5-inc1", "rand-n3-p0.25", "rand-mmax20-m15", "rand-m0-mmax0"),
        *("rand-mstd101-m5", "rand-inc0", "rand-tweights", "rand-m9-tweights-n1", "rand-n0", "rand-p1.0-mstd100"),
    ],
)
def test_means_what_it_means_in_timm(notation):
    read, timms = parse(notation), auto_augment.rand_augment_transform(notation, {})
    assert read.ops == tuple(op.name for op in timms.ops) or read.weights
    assert read.layers == timms.num_layers
    for op in timms.ops:
        assert read.probability == op.prob
        assert read.magnitude == op.magnitude
        assert read.deviation == op.magnitude_std
        assert read.highest == (op.magnitude_max or 10)
    if timms.choice_weights is not None:
        weights = dict(zip(read.ops, read.weights))
        share = {name: weight / sum(read.weights) for name, weight in weights.items()}
        assert share == pytest.approx({op.name: p for op, p in zip(timms.ops, timms.choice_weights)})
    else:
        assert read.weights == ()


def test_the_sets_are_timms():
    assert list(PLAIN) == auto_augment._RAND_TRANSFORMS
    assert list(INCREASING) == auto_augment._RAND_INCREASING_TRANSFORMS


def test_a_large_deviation_is_uniform():
    assert parse("rand-mstd101").deviation == math.inf
    assert parse("rand-mstd100").deviation == 100


@pytest.mark.parametrize(
    ("notation", "named"),
    [
        ("randaug-m9", "no 'rand'"),
        ("augmix-m3", "no 'rand'"),
        ("", "no 'rand'"),
        ("rand-x9", "'x9'"),
        ("rand-w0", "'w0'"),
        ("rand-m9.5", "'9.5'"),
        ("rand-mstd0.5.5", "'0.5.5'"),
        ("rand-9", "'9'"),
        ("rand-inc", "'inc'"),
        ("rand--m9", "''"),
        ("rand-m9-m7", "'m' is given twice"),
        ("rand-t3a", "Gaussian blur"),
        ("rand-t3aw-n1", "Gaussian blur"),
        ("rand-tnothing", "'tnothing'"),
        ("rand-tweights-n16", "16 ops"),
    ],
)
def test_what_is_wrong_is_named(notation, named):
    with pytest.raises(ValueError, match=named) as error:
        parse(notation)
    assert repr(notation) in str(error.value)
