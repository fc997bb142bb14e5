"""Which calls count as a ReLU, beside those in test_backtrack.py."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bort.invert import RULES, Backtracker
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
        Backtracker(Clamped().double(), "a", "guided").trace(seeds(2, 3))
    assert Backtracker(net, "0").trace(seeds(2, 3)).smooth


def test_activations_of_the_rules_kind_are_counted():
    rules = Rules("guided")
    with rules:
        F.relu(torch.randn(2))
        nn.ReLU()(torch.randn(2))
    assert not rules.smooth
    with rules:
        F.gelu(torch.randn(2))
    assert rules.activations == 3
    assert rules.smooth


class Mixed(nn.Module):
    """A smooth network with one ReLU, in a squeeze-and-excitation block."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.squeeze = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3), nn.Conv2d(6, 6, 1)

    def forward(self, x):
        z = F.silu(self.b(F.silu(self.a(x))))
        return (z * F.relu(self.squeeze(z.mean(dim=(2, 3), keepdim=True))).sigmoid()).mean(dim=(2, 3))


@pytest.mark.parametrize("rule", ["guided", "deconvolution"])
def test_a_relu_does_not_switch_the_rule_off_for_smooth_activations(rule):
    """g of the second convolution has two SiLUs on its way, and no ReLU."""
    net, x, seed = Mixed().double(), seeds(2, 1, 8, 8), seeds(2, 6, 4, 4, seed=3)
    trace = Backtracker(net, "b", rule).trace(x)
    assert trace.smooth
    signal = seed
    for value, convolution in ((trace.features, net.b), (F.silu(net.a(x)), net.a)):
        passed = signal.clamp(min=0) * (value > 0 if rule == "guided" else 1)
        signal = F.conv_transpose2d(passed, convolution.weight)
    torch.testing.assert_close(trace(seed), signal)


class Clamped(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)

    def forward(self, x):
        return self.a(x).clamp(0, 6)


class PreActivated(nn.Module):
    """Its shortcut takes what the activation function has left of its input, as is usual where it is in place."""

    def __init__(self, act):
        super().__init__()
        self.stem, self.conv, self.act, self.head = (
            nn.Conv2d(1, 4, 3),
            nn.Conv2d(4, 4, 3, padding=1),
            act,
            nn.Linear(4, 3),
        )

    def forward(self, x):
        z = self.stem(x)
        return self.head((z + self.conv(self.act(z))).mean(dim=(2, 3)))


IN_PLACE = [nn.ReLU, nn.SiLU, nn.Mish, nn.Hardswish, nn.ELU, nn.SELU, nn.CELU, nn.LeakyReLU, nn.ReLU6, nn.Hardtanh]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("act", IN_PLACE)
def test_an_activation_in_place_changes_the_tensor_for_all(act, rule):
    net, x = PreActivated(act(inplace=True)).double().eval(), seeds(2, 1, 6, 6)
    trace = Backtracker(net, "stem", rule).trace(x)
    torch.testing.assert_close(trace.outputs, net(x))
    torch.testing.assert_close(trace.features, act()(net.stem(x)))
    torch.testing.assert_close(Backtracker(net, "conv", rule).trace(x).features, net.conv(act()(net.stem(x))))


@pytest.mark.parametrize("act", IN_PLACE)
def test_other_features_behind_an_activation_in_place(act):
    net, x = PreActivated(act(inplace=True)).double().eval(), seeds(2, 1, 6, 6)
    trace, other = Backtracker(net, "stem", "gradient").trace(x), seeds(2, 4, 4, 4, seed=1)
    expected = net.head((other + net.conv(other)).mean(dim=(2, 3)))
    torch.testing.assert_close(trace.forward(other), expected)
