"""Mixup and cutmix: timm's formulas, with neighbours as partners."""

from unittest import mock

import numpy as np
import pytest
import torch
from scipy import stats
from timm.data import mixup as timms
from torch.nn import functional as F

from bort.augment import MIX_DRAWS, mix_draw, mixed

SIZE = 16


def as_timm_pairs(x):
    """The order in which timm's partner of each image, B − 1 − i, is its neighbour here."""
    return torch.stack((x[: len(x) // 2], x.flip(0)[: len(x) // 2]), 1).flatten(0, 1)


@pytest.mark.parametrize("box", [None, (0, 5, 3, 16), (4, 4, 7, 7), (0, 16, 0, 16)])
def test_mixes_as_timm(box):
    """timm draws what is given here, and mixes."""
    images, labels = torch.randn(6, 3, SIZE, SIZE), torch.tensor([0, 1, 2, 3, 3, 0])
    share = 0.3 if box is None else 1 - (box[1] - box[0]) * (box[3] - box[2]) / SIZE**2
    mixup = timms.Mixup(0.8, 1.0, label_smoothing=0.1, num_classes=5)
    with (
        mock.patch.object(mixup, "_params_per_batch", return_value=(0.3, box is not None)),
        mock.patch.object(timms, "rand_bbox", return_value=box),
    ):
        expected = mixup(images.clone(), labels)
    draw = torch.tensor([share, *((0.3, 0, 0, 0, 0) if box is None else (1.0, *box))])
    result = mixed(as_timm_pairs(images), as_timm_pairs(labels), draw, classes=5, smoothing=0.1)
    for ours, theirs in zip(result, expected):
        torch.testing.assert_close(ours, as_timm_pairs(theirs))


def test_without_smoothing_targets_are_shares_of_the_labels():
    _, targets = mixed(torch.zeros(2, 1, 4, 4), torch.tensor([1, 2]), torch.tensor([0.25, 0.25, 0, 0, 0, 0]), 3, 0.0)
    assert targets.tolist() == [[0, 0.25, 0.75], [0, 0.75, 0.25]]


def test_partners_are_of_one_view():
    images = torch.arange(12.0).view(12, 1, 1, 1).expand(-1, 1, 2, 2)
    labels = torch.arange(4).repeat(3)
    draw = torch.tensor([0.0, 0.0, 0, 0, 0, 0])  # each becomes its partner
    result, targets = mixed(images, labels, draw, 4, 0.0, views=3)
    assert result[:, 0, 0, 0].tolist() == [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10]
    assert torch.equal(targets.argmax(1), torch.tensor([1, 0, 3, 2]).repeat(3))
    with pytest.raises(ValueError, match="6 images in 2 views"):
        mixed(images[:6], labels[:6], draw, 4, 0.0, views=2)


def test_divided_among_processes_it_is_the_same():
    images, labels = torch.randn(8, 1, SIZE, SIZE), torch.arange(8)
    draw = mix_draw(3, 0.8, 1.0, SIZE)
    whole = mixed(images, labels, draw, 8, 0.1)
    for part in (slice(0, 4), slice(4, 8)):
        for ours, all_of_it in zip(mixed(images[part], labels[part], draw, 8, 0.1), whole):
            assert torch.equal(ours, all_of_it[part])


def test_the_layout_is_kept():
    images = torch.randn(4, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    result, _ = mixed(images, torch.arange(4), mix_draw(1, 0.8, 0.0, 8), 4, 0.1)
    assert result.is_contiguous(memory_format=torch.channels_last)


def draws(mixup, cutmix, count=3000):
    return torch.stack([mix_draw(seed, mixup, cutmix, SIZE) for seed in range(count)])


def test_mixup_is_beta_distributed():
    drawn = draws(0.8, 0.0)
    assert torch.equal(drawn[:, 0], drawn[:, 1])
    assert not drawn[:, 2:].any()
    assert stats.kstest(drawn[:, 0].numpy(), stats.beta(0.8, 0.8).cdf).pvalue > 1e-3


def test_cutmix_is_distributed_as_timms():
    share, outside, top, bottom, left, right = draws(0.0, 1.0).numpy().T
    assert (outside == 1).all()
    assert share == pytest.approx(1 - (bottom - top) * (right - left) / SIZE**2)
    np.random.seed(0)  # noqa: NPY002, timm's
    theirs = []
    for _ in range(3000):
        share, _ = timms.Mixup(0.0, 1.0)._params_per_batch()
        theirs.append(timms.rand_bbox((1, 1, SIZE, SIZE), share))
    for ours, other in zip((top, bottom, left, right), np.array(theirs).T):
        assert stats.ks_2samp(ours, other).pvalue > 1e-3


def test_both_are_equally_likely():
    is_cutmix = draws(0.8, 1.0)[:, 1] == 1
    assert stats.binomtest(int(is_cutmix.sum()), len(is_cutmix)).pvalue > 1e-3


def test_a_draw_depends_on_its_seed_alone():
    assert mix_draw(5, 0.8, 1.0, SIZE).shape == (MIX_DRAWS,)
    assert torch.equal(mix_draw(5, 0.8, 1.0, SIZE), mix_draw(5, 0.8, 1.0, SIZE))
    with pytest.raises(ValueError, match="nothing to draw"):
        mix_draw(5, 0.0, 0.0, SIZE)


def test_targets_agree_with_one_hot_labels():
    """A share of 1 and no smoothing."""
    labels = torch.tensor([2, 0, 1, 1])
    _, targets = mixed(torch.zeros(4, 1, 2, 2), labels, torch.tensor([1.0, 1, 0, 0, 0, 0]), 3, 0.0)
    assert torch.equal(targets, F.one_hot(labels, 3).float())
