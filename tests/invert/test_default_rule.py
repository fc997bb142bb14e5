"""The rule by which signals go back if none is named: the paper's, where there is an activation function that it acts on."""

import pytest
import torch
from torch import nn

from bort import explain, invert, measure, nets
from tests.invert.test_backtrack import seeds


def network(act):
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3), act, nn.Conv2d(4, 6, 3), act)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)).double().eval()


@pytest.mark.parametrize("act", [nn.ReLU(), nn.SiLU()])
def test_guided_where_it_acts(act):
    net, x = network(act), seeds(2, 1, 8, 8)
    trace, guided = invert.Backtracker(net, "2").trace(x), invert.Backtracker(net, "2", "guided").trace(x)
    assert trace.rule == "guided"
    assert torch.equal(trace(trace.features), guided(guided.features))
    assert invert.decompose(net, x, "2", k=2).rule == "guided"


@pytest.mark.parametrize("act", [nn.Tanh(), nn.Sigmoid(), nn.PReLU(), nn.Identity()])
def test_gradients_where_there_is_nothing_to_act_on(act):
    net, x = network(act), seeds(2, 1, 8, 8)
    trace, gradient = invert.Backtracker(net, "2").trace(x), invert.Backtracker(net, "2", "gradient").trace(x)
    assert trace.rule == "gradient"
    assert torch.equal(trace(trace.features), gradient(gradient.features))
    assert invert.decompose(net, x, "2", k=2).rule == "gradient"
    torch.testing.assert_close(explain.sat(net, x, k=2), explain.sat(net, x, k=2, rule="gradient"))
    for rule in ("guided", "deconvolution"):
        with pytest.raises(ValueError, match=f"the rule '{rule}' has nothing to act on: .* leave it out"):
            invert.reconstruct(net, x, "2", rule=rule)


@pytest.mark.parametrize("path", ["none", "source", "target"])
def test_synthesis_without_a_rule(path):
    net, source, target = network(nn.Tanh()), seeds(2, 1, 8, 8), seeds(2, 1, 8, 8, seed=1)
    made = invert.synthesize(net, source, target, "2", k=3, path=path)
    traces = [invert.Backtracker(net, "2", "gradient").trace(x) for x in (source, target)]
    salient = traces[1].salient(3)
    places = traces[0].maps.flatten(2).argmax(dim=2).gather(1, salient.channels)
    signals = traces[path == "target"].back(salient.seed(salient.values, places))
    torch.testing.assert_close(invert.correlation(made.images, signals), torch.ones(2).double())


def test_evaluations_take_any_network():
    net, x = nets.create("lenet", activation="tanh"), torch.rand(1, 1, 28, 28)
    evaluations = measure.evaluate(net, x, ["sat", "cam"], steps=4, warn=False)
    assert evaluations["sat"].maps.std() > 0
