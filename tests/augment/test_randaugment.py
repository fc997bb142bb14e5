"""RandAugment as a whole: what is drawn how often, and that a batch is nothing but its images."""

import random

import numpy as np
import pytest
import torch
from scipy import stats
from timm.data import auto_augment

from bort.augment import _randaugment, image_keys
from bort.augment._capacity import capacity
from bort.augment._draws import Stream, uniform
from bort.augment._ops import NOTHING, OPS
from bort.augment._randaugment import RandAugment
from tests.augment.pictures import natural

COUNT = 30_000
FILL = (124, 116, 104)


def chosen(notation, count=COUNT, base=1):
    randaugment = RandAugment(notation, FILL)
    keys = image_keys(base, torch.arange(count))
    return randaugment, randaugment.choose(uniform(keys, Stream.RANDAUGMENT, randaugment.draws))


@pytest.mark.parametrize("notation", ["rand-m9-mstd0.5", "rand-m9-p0.8-n3-inc1"])
def test_every_op_is_drawn_as_often_and_independently(notation):
    randaugment, choice = chosen(notation)
    ops, p = len(randaugment.ops) - 1, randaugment.notation.probability
    expected = np.append(np.full(ops, p / ops), 1 - p)
    for layer in range(randaugment.notation.layers):
        counts = np.bincount(choice.op[:, layer], minlength=ops + 1)
        assert stats.chisquare(counts, expected * COUNT).pvalue > 1e-3
    pairs = np.bincount(choice.op[:, 0] * (ops + 1) + choice.op[:, 1], minlength=(ops + 1) ** 2)
    assert stats.chisquare(pairs, np.outer(expected, expected).ravel() * COUNT).pvalue > 1e-3


@pytest.mark.parametrize("what", ["sign", "cubic"])
def test_signs_and_interpolations_are_equally_likely(what):
    _, choice = chosen("rand-m9-n1-p1")
    rotated = choice.op == list(auto_augment._RAND_TRANSFORMS).index("Rotate")
    drawn = (choice.argument < 0 if what == "sign" else choice.cubic)[rotated]
    assert stats.binomtest(int(drawn.sum()), len(drawn)).pvalue > 1e-3


@pytest.mark.parametrize(
    "notation", ["rand-m9-mstd0.5", "rand-m7-mstd0.5-inc1", "rand-m9-mstd101", "rand-m14-mmax20-mstd3"]
)
@pytest.mark.parametrize("name", ["Rotate", "SolarizeAdd", "ShearX", "Color", "Posterize", "TranslateYRel"])
def test_arguments_are_distributed_as_timms(notation, name):
    randaugment, choice = chosen(f"{notation}-n1-p1")
    timms = {op.name: op for op in auto_augment.rand_augment_transform(f"{notation}-p1", {}).ops}
    name = name if name in timms else f"{name}Increasing"
    ours = choice.argument[choice.op == randaugment.notation.ops.index(name)].numpy()
    random.seed(0)
    op = timms[name]
    op.aug_fn = lambda image, argument, **_: argument
    theirs = np.array([op(None) for _ in range(4000)])
    assert len(ours) > 1500
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-3


def test_weighted_ops_are_drawn_without_replacement_as_by_numpy():
    randaugment, choice = chosen("rand-tweights-p1-n3")
    weights = np.array(randaugment.notation.weights) / sum(randaugment.notation.weights)
    generator, ops = np.random.default_rng(0), len(weights)
    theirs = np.array([generator.choice(ops, 3, replace=False, p=weights) for _ in range(COUNT)])
    assert all(len(set(row)) == 3 for row in choice.op.tolist())
    for layer in range(3):
        table = [np.bincount(drawn[:, layer], minlength=ops) for drawn in (choice.op.numpy(), theirs)]
        assert stats.chi2_contingency(table).pvalue > 1e-3


def test_an_image_does_not_depend_on_its_batch():
    """Nor on its place in it, whichever stages its neighbours need."""
    randaugment = RandAugment("rand-m9-mstd0.5-n3-p0.8", FILL)
    images, keys = natural(60, 24, 24), image_keys(9, torch.arange(60))

    def augmented(places):
        numbers = uniform(keys[places], Stream.RANDAUGMENT, randaugment.draws)
        return randaugment(images[places], randaugment.choose(numbers))

    together = augmented(torch.arange(60))
    order = torch.randperm(60)
    assert torch.equal(augmented(order), together[order])
    for place in range(0, 60, 7):
        assert torch.equal(augmented(torch.tensor([place]))[0], together[place])
    assert sum(not torch.equal(a, b) for a, b in zip(images, together)) > 40


@pytest.mark.parametrize("fixed", [False, True], ids=["exact", "capacity"])
def test_each_image_goes_through_its_own_ops_in_order(fixed, monkeypatch):
    """A large batch, where each stage works on part of it, against one image and one layer at a time. On a GPU the parts are
    larger than they must be."""
    randaugment, choice = chosen("rand-m9-mstd0.5-inc1", 300)
    if fixed:
        assert max(randaugment.capacities(300)) < 200
        monkeypatch.setattr(_randaugment, "_exact_counts", lambda needed: randaugment.capacities(needed.shape[-1]))
    images = natural(300, 16, 16)
    together = randaugment(images.clone(), choice)
    monkeypatch.undo()
    single = RandAugment("rand-n1-p1", FILL)
    for i, image in enumerate(images[:, None]):
        for layer in range(2):
            single.ops = (randaugment.ops[choice.op[i, layer]], NOTHING)
            if single.ops[0] is not NOTHING:
                one = type(choice)(*(value[i : i + 1, layer : layer + 1] for value in choice))
                image = single(image.clone(), one._replace(op=torch.zeros_like(one.op)))
        assert torch.equal(image[0], together[i]), i


@pytest.mark.parametrize("notation", ["rand-p0", "rand-n0", "rand-m9-n1-p1-mstd0.5"])
def test_extremes(notation):
    randaugment, choice = chosen(notation, 5)
    images = natural(5, 16, 16)
    result = randaugment(images.clone(), choice)
    assert torch.equal(result, images) == (notation != "rand-m9-n1-p1-mstd0.5")


@pytest.mark.parametrize(
    ("count", "p"), [(256, 1 / 6), (256, 4 / 15), (1024, 1 / 15), (512, 0.5), (10, 0.3), (64, 0.9)]
)
def test_capacity_is_the_smallest_that_is_never_exceeded(count, p):
    enough = capacity(count, p)
    assert enough == count or stats.binom.sf(enough, count, p) < 1e-15
    assert stats.binom.sf(enough - 1, count, p) >= 1e-15 * (1 - 1e-6)
    assert (capacity(count, 0.0), capacity(count, 1.0)) == (0, count)


def test_every_op_of_timm_is_there():
    assert set(auto_augment._RAND_TRANSFORMS) | set(auto_augment._RAND_INCREASING_TRANSFORMS) <= set(OPS)
