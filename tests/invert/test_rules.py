"""Which calls count as a ReLU, beside those in test_backtrack.py."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bort.invert import Backtracker
from bort.invert._rules import Rules
from tests.invert.test_backtrack import Net, seeds


@pytest.mark.parametrize(
    "relu",
    [
        lambda a: a.clamp(min=0),
        lambda a: torch.clamp(a, 0),
        lambda a: torch.clamp_min(a, 0),
        lambda a: a.clamp_(min=0),
        lambda a: F.threshold(a, 0, 0),
    ],
)
def test_other_ways_to_write_a_relu(relu):
    x, seed = seeds(2, 2, 10, 10), seeds(2, 6, 3, 3, seed=3)
    expected = Backtracker(Net("functional").double(), "conv3").trace(x)(seed)
    torch.testing.assert_close(Backtracker(Net(relu).double(), "conv3").trace(x)(seed), expected)


def test_a_clamp_that_is_no_relu_is_left_alone():
    net = nn.Sequential(nn.Linear(3, 4), nn.Hardtanh(-0.1, 0.1), nn.Linear(4, 2)).double()
    with pytest.raises(ValueError, match="use rule='gradient'"):
        Backtracker(Clamped().double(), "a").trace(seeds(2, 3))
    assert Backtracker(net, "0").trace(seeds(2, 3)).smooth


def test_activations_of_the_rules_kind_are_counted():
    rules = Rules("guided")
    with rules:
        F.relu(torch.randn(2))
        nn.ReLU()(torch.randn(2))
        F.gelu(torch.randn(2))
    assert rules.activations == 2


class Clamped(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)

    def forward(self, x):
        return self.a(x).clamp(0, 6)
