"""Training on a GPU: captured steps, the flag that stops a bad update, and checkpoints of channels_last weights."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from bort import nets, train
from bort.train import NotFinite
from bort.train.recipes import Net
from tests.train.small import LENET, RECIPE, fit, result, stop_at

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SGD = replace(RECIPE.optim, name="sgd", constraint=0.0)
LONG = replace(LENET, epochs=6)
BUILT = []
"""The networks that `lenet_with_poison` has built."""


def lenet_with_poison(at, **shape):
    net = nets.create("lenet", **shape)
    net.fc1 = nn.Sequential(net.fc1, Poison(at))
    BUILT.append(net)
    return net


def lenet_with_large_weight(**shape):
    net = nets.create("lenet", **shape)
    with torch.no_grad():
        net.fc2.weight.mul_(1e14)
        net.head.weight.mul_(1e-14)
    return net


def close(one, other, rtol=2e-3):
    (weights, history), (expected, expected_history) = result(one), result(other)
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=rtol, atol=1e-3)
    for record, wanted in zip(history, expected_history, strict=True):
        assert record["loss"] == pytest.approx(wanted["loss"], rel=rtol)


@pytest.fixture
def captures(monkeypatch):
    """A list with an entry for each CUDA graph that was captured."""
    graphs, capture = [], torch.cuda.graph
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: (graphs.append(graph), capture(graph))[1])
    return graphs


@pytest.mark.parametrize("optim", [SGD, RECIPE.optim], ids=["sgd", "bort-s"])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_captured_steps_are_the_same_steps(tmp_path, captures, optim, clip):
    recipe = replace(LONG, optim=replace(optim, clip=clip))
    graphs = fit(tmp_path / "graphs", recipe, device="cuda")
    assert len(captures) == 2, "one for batches of 32, one for the last of an epoch"
    plain = fit(tmp_path / "plain", recipe, device="cuda", graphs=False)
    assert len(captures) == 2
    cpu = fit(tmp_path / "cpu", recipe)
    close(graphs, plain)
    close(graphs, cpu, rtol=1e-2)


@pytest.mark.parametrize("optim", [replace(RECIPE.optim, every=2), replace(RECIPE.optim, schedule="cosine")])
def test_what_changes_from_step_to_step_is_not_captured(tmp_path, captures, optim):
    recipe = replace(LENET, optim=optim)
    close(fit(tmp_path / "cuda", recipe, device="cuda"), fit(tmp_path / "cpu", recipe), 1e-2)
    assert captures == []


class Poison(nn.Module):
    """NaN from the n-th call on, counted on the device: a replay counts too."""

    def __init__(self, at):
        super().__init__()
        self.at = at
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return torch.where((self.calls >= self.at) & self.training, math.nan, 1.0) * x


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize(
    "optim",
    [SGD, RECIPE.optim, *(replace(RECIPE.optim, name=name, momentum=0.0) for name in ("bort-a", "bort-l"))],
    ids=lambda o: o.name,
)
def test_a_bad_step_is_not_made(tmp_path, graphs, optim):
    """Noticed at the end of the epoch, 2 steps later; the weights are those of 13 good steps."""
    recipe = replace(LONG, optim=optim)
    poisoned = replace(recipe, net=Net(f"{__name__}:lenet_with_poison", {"at": 14}))
    with pytest.raises(NotFinite, match=r"the loss is nan at step 14 \(epoch 3\): the output of fc1\.1 is not finite"):
        fit(tmp_path / "bad", poisoned, device="cuda", graphs=graphs)
    weights = {name: value.clone() for name, value in BUILT[-1].state_dict().items()}
    with pytest.raises(train.Interrupted):
        fit(tmp_path / "good", recipe, device="cuda", graphs=graphs, on_step=stop_at(13))
    for name, value in train.load(tmp_path / "good").model.state_dict().items():
        key = name.replace("fc1.", "fc1.0.")
        torch.testing.assert_close(weights[key].cpu(), value, rtol=2e-3, atol=1e-4)


def test_a_penalty_that_would_overflow(tmp_path):
    with pytest.raises(NotFinite, match=r"the penalty of fc2\.weight overflows at step 1 "):
        fit(tmp_path, replace(LONG, net=Net(f"{__name__}:lenet_with_large_weight")), device="cuda")


@pytest.mark.parametrize("precision", ["auto", "float32"])
def test_resumed_on_a_gpu(tmp_path, precision):
    """channels_last weights come back with their momentum laid out alike, and dropout goes on where it was."""
    recipe = replace(RECIPE, epochs=6, precision=precision)
    whole = fit(tmp_path / "whole", recipe, device="cuda", graphs=False)
    with pytest.raises(train.Interrupted):
        fit(tmp_path / "cut", recipe, device="cuda", on_step=stop_at(13), graphs=False)
    close(fit(tmp_path / "cut", recipe, device="cuda", graphs=False), whole, rtol=1e-2)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled(tmp_path):
    recipe = replace(LENET, optim=replace(SGD, schedule="cosine"))
    compiled = fit(tmp_path / "compiled", recipe, device="cuda", compile=True)
    close(compiled, fit(tmp_path / "plain", recipe, device="cuda"), rtol=1e-2)
