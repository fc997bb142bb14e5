"""Reports of networks that are made otherwise than the paper's: other activation functions, one logit, hardly a weight."""

import pytest
import torch
from torch import nn

from bort import invert
from bort.report import Measured, SampleSizes, draw, make, measured
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


class OneLogit(nn.Module):
    """Above 0 for bright images."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)

    def forward(self, x):
        return 10 * x.mean(dim=(1, 2, 3))[:, None] - 5 + self.conv(x).relu().mean(dim=(1, 2, 3))[:, None] * 0


def test_one_logit_decides_between_two_classes(images):
    """By the softmax of one logit, or the largest of one, every image would be of class 0."""
    torch.manual_seed(0)
    x = torch.cat([images * 0.4, 0.6 + images * 0.4])
    labels = torch.tensor([0] * 8 + [1] * 7 + [0])
    one = Measured(of_models({"one": OneLogit()}, x, labels=labels)[0], SIZES)
    assert one.answers.sum() == 15
    by_two = Measured(of_models({"two": TwoLogits()}, x, labels=labels)[0], SIZES)
    assert one.predictions(16).tolist() == by_two.predictions(16).tolist()
    for own in (one, by_two):
        own.methods = ["cam"]
    assert "one has one logit, so bright is what counts for “1”" in draw("saliency", [one]).look
    assert "one logit" not in draw("saliency", [by_two]).look
    made = one.adversaries(one.pairs)
    assert made.pairs == by_two.adversaries(by_two.pairs).pairs > 0


class Table(nn.Module):
    """Its weight is of no layer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 2))

    def forward(self, x):
        return x.flatten(1) @ self.weight


@pytest.mark.parametrize("with_images", [True, False])
def test_networks_with_hardly_a_weight(images, with_images, monkeypatch):
    monkeypatch.setattr(Measured, "methods", ["ig"])
    single = nn.Sequential(nn.Flatten(), nn.Linear(64, 1))
    x = images if with_images else None
    made = make(of_models({"single": single}, x), sizes=SIZES)
    assert made.missing["gram"] == "the Gram matrices of single are single numbers: its singular values say all of them"
    assert "sigma" in {illustration.name for illustration in made.illustrations}
    made = make(of_models({"table": Table(), "usual": convolutions(nn.ReLU())}, x), sizes=SIZES)
    for name in ("gram", "sigma", "ratio"):
        assert made.missing[name] == "table has no linear layer and no convolution whose weight could be looked at"


class TwoLogits(OneLogit):
    """The same network with the logits 0 and z."""

    def forward(self, x):
        z = super().forward(x)
        return torch.cat([torch.zeros_like(z), z], dim=1)
