"""What counts as a ReLU, beside the ways that test_backtrack.py tries."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bort.invert import Backtracker
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
def test_other_ways_to_write_a_relu(relu, monkeypatch):
    net, x = Net("functional").double(), seeds(2, 2, 10, 10)
    seed = seeds(2, 6, 3, 3, seed=3)
    expected = Backtracker(net, "conv3").trace(x)(seed)
    monkeypatch.setattr(Net, "act", lambda self, a: relu(a))
    torch.testing.assert_close(Backtracker(net, "conv3").trace(x)(seed), expected)


def test_a_clamp_that_is_no_relu_is_left_alone():
    net = nn.Sequential(nn.Linear(3, 4), nn.Hardtanh(-0.1, 0.1), nn.Linear(4, 2)).double()
    with pytest.raises(ValueError, match="use rule='gradient'"):
        Backtracker(Clamped().double(), "a").trace(seeds(2, 3))
    assert Backtracker(net, "0").trace(seeds(2, 3)).smooth


class Clamped(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)

    def forward(self, x):
        return self.a(x).clamp(0, 6)
