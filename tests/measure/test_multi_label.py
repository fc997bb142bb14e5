"""Networks whose images may have several classes: each class has a probability of its own, the sigmoid of its logit."""

import numpy as np
import pytest
import torch
from torch import nn

from bort import explain, measure


class Corners(nn.Module):
    """Two classes, each the brightness of one corner: a bright image has both."""

    def forward(self, x):
        return torch.stack([x[:, 0, :4, :4].sum(dim=(1, 2)), x[:, 0, 4:, 4:].sum(dim=(1, 2))], dim=1) - 2


@pytest.fixture
def images():
    return 0.5 + 0.1 * torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_rise_of_one_class_ignores_the_other(images):
    """By softmax, what hides one corner would be evidence for the other."""
    both = explain.rise(Corners(), images, 0, masks=2000, cells=4, multi_label=True)
    by_function = explain.rise(
        Corners(), images, 0, masks=2000, cells=4, score=lambda logits, classes: logits[:, 0].sigmoid()
    )
    torch.testing.assert_close(both, by_function)
    exclusive = explain.rise(Corners(), images, 0, masks=2000, cells=4)
    of_other, of_other_by_softmax = (_part_of_the_other_corner(maps) for maps in (both, exclusive))
    assert (of_other > -0.4).all(), "masks that show a corner show a little less of the others"
    assert (of_other_by_softmax < -0.7).all()


def _part_of_the_other_corner(maps):
    """What the corner of class 1 has above the corners of no class, relative to that of class 0."""
    own, other, none = (
        maps[:, rows, columns].mean(dim=(1, 2))
        for rows, columns in ((slice(0, 4), slice(0, 4)), (slice(4, 8), slice(4, 8)), (slice(0, 4), slice(4, 8)))
    )
    return (other - none) / (own - none)


def test_probabilities_of_deletion(images):
    net, maps = Corners(), images[:, 0]
    curves = measure.deletion_insertion(net, images, maps, 1, steps=8, score="probability", multi_label=True)
    torch.testing.assert_close(curves.deletion_curves[:, 0], net(images)[:, 1].sigmoid())
    torch.testing.assert_close(curves.insertion_curves[:, -1], net(images)[:, 1].sigmoid())
    at_step = measure.at_step(net, images, maps, 3, steps=8, target=1, score="probability", multi_label=True)
    torch.testing.assert_close(at_step.scores, curves.deletion_curves[:, 3])
    exclusive = measure.deletion_insertion(net, images, maps, 1, steps=8, score="probability")
    assert (curves.deletion_curves[:, 0] > exclusive.deletion_curves[:, 0]).all()


def test_evaluate(images):
    """The methods that have the option get it too."""
    net = Corners()
    results = measure.evaluate(
        net, images, ["rise"], 0, steps=8, options={"rise": {"masks": 64, "cells": 4}}, multi_label=True, warn=False
    )
    expected = explain.rise(net, images, 0, masks=64, cells=4, multi_label=True)
    torch.testing.assert_close(results["rise"].maps, expected)
    curves = measure.all_scores(net, images, expected, 0, steps=8, multi_label=True, warn=False)
    for score, result in results["rise"].scores.items():
        torch.testing.assert_close(result.deletion, curves[score].deletion, equal_nan=True)
    torch.testing.assert_close(curves["probability"].deletion_curves[:, 0], net(images)[:, 0].sigmoid())


def test_calibration_is_that_of_all_decisions():
    """By scikit-learn's log loss, and a loop over decisions."""
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(40, 3, generator=generator)
    labels = (torch.rand(40, 3, generator=generator) < 0.4).long()
    result = measure.calibration(logits, labels, bins=5, multi_label=True)
    yes = logits.double().sigmoid().flatten().numpy()
    truth = labels.flatten().numpy()
    assert result.negative_log_likelihood == pytest.approx(metrics.log_loss(truth, yes))
    confidence, right = np.maximum(yes, 1 - yes), (yes > 0.5) == truth
    bins = np.ceil(confidence * 5).astype(int) - 1
    error = sum(abs(right[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean() for b in set(bins))
    assert result.error == pytest.approx(error)
    assert int(result.counts.sum()) == 120


def test_one_logit():
    logits, labels = torch.tensor([[2.0], [-1.0]]), torch.tensor([[1], [1]])
    result = measure.calibration(logits, labels, multi_label=True)
    assert result.negative_log_likelihood == pytest.approx(-logits.sigmoid().log().mean().item())
    with pytest.raises(ValueError, match=r"A head with one logit z is one with the two logits 0 and z"):
        measure.calibration(logits, labels[:, 0])
    two = measure.calibration(torch.cat([torch.zeros_like(logits), logits], dim=1), labels[:, 0])
    assert two.error == pytest.approx(result.error)


def test_bad_labels():
    for labels in (torch.tensor([0, 1]), torch.tensor([[0, 2], [1, 0]])):
        with pytest.raises(ValueError, match="with multi_label both are"):
            measure.calibration(torch.rand(2, 2), labels, multi_label=True)
