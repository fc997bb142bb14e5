"""Reports of networks that are made otherwise than the paper's: other activation functions, one logit, hardly a weight."""

import pytest
import torch
from torch import nn

from bort import invert
from bort.report import SampleSizes, draw, measured
from bort.subject import of_models

SIZES = SampleSizes(shown=2, measured=4, evaluated=2, masks=10, features=3, pairs=4, tested=20)


def convolutions(act, classes=2):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), act, nn.Conv2d(4, 6, 3), act]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, classes)).eval()


@pytest.fixture
def images():
    return torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_signals_of_networks_without_activations_of_the_rules_are_gradients(images):
    """And the figures that show them say so, of these networks only."""
    subjects = measured(of_models({"new": convolutions(nn.Tanh()), "usual": convolutions(nn.ReLU())}, images), SIZES)
    for subject in subjects:
        subject.methods = ["cam", "sat"]  # the others have no part in this
    x = subjects[0].images(2)
    expected = invert.reconstruct(subjects[0].model, x, "2", rule="gradient")
    torch.testing.assert_close(subjects[0].reconstructions().signals, expected)
    for name in ("reconstruction", "features", "saliency", "clusters", "adversaries"):
        look = draw(name, subjects).look
        assert "new has no ReLU, GELU or SiLU that the guided rule could act on: its signals are gradients." in look
        assert "usual has no ReLU" not in look
    assert "guided rule" not in draw("saliency", subjects[1:]).look
    assert "guided rule" not in draw("sigma", subjects).look
