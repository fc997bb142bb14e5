"""Training on a GPU: captured steps, the flag that stops a bad update, and checkpoints of channels_last weights."""

import math
import signal
from dataclasses import replace

import pytest
import torch
from torch import nn

from bort import nets, train
from bort.train import NotFinite, _step
from tests.train.small import RECIPE, fit, result

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SGD = replace(RECIPE.optim, name="sgd", constraint=0.0)
LONG = replace(RECIPE, epochs=6)


def lenet(recipe):
    return nets.create("lenet")


def close(one, other, rtol=2e-3):
    (weights, history), (expected, expected_history) = result(one), result(other)
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=rtol, atol=1e-3)
    for record, wanted in zip(history, expected_history, strict=True):
        assert record["loss"] == pytest.approx(wanted["loss"], rel=rtol)


@pytest.fixture
def captures(monkeypatch):
    """How many graphs there were."""
    seen, real = [], _step.CapturedStep._capture
    monkeypatch.setattr(
        _step.CapturedStep, "_capture", lambda self, batch: (seen.append(batch.count), real(self, batch))[1]
    )
    return seen


@pytest.mark.parametrize("optim", [SGD, RECIPE.optim], ids=["sgd", "bort-s"])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_captured_steps_are_the_same_steps(tmp_path, captures, optim, clip):
    recipe = replace(LONG, optim=replace(optim, clip=clip))
    graphs = fit(tmp_path / "graphs", recipe, network=lenet, device="cuda")
    assert captures == [32, 22], "one for the batches, one for the last of an epoch"
    plain = fit(tmp_path / "plain", recipe, network=lenet, device="cuda", graphs=False)
    cpu = fit(tmp_path / "cpu", recipe, network=lenet)
    close(graphs, plain)
    close(graphs, cpu, rtol=1e-2)


@pytest.mark.parametrize("optim", [replace(RECIPE.optim, every=2), replace(RECIPE.optim, schedule="cosine")])
def test_what_changes_from_step_to_step_is_not_captured(tmp_path, captures, optim):
    recipe = replace(RECIPE, optim=optim)
    close(
        fit(tmp_path / "cuda", recipe, network=lenet, device="cuda"), fit(tmp_path / "cpu", recipe, network=lenet), 1e-2
    )
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
    "optim", [SGD, RECIPE.optim, replace(RECIPE.optim, name="bort-a", momentum=0.0)], ids=lambda o: o.name
)
def test_a_bad_step_is_not_made(tmp_path, graphs, optim):
    """Noticed at the end of the epoch, 2 steps later; the weights are those of 13 good steps."""
    kept = {}

    def build(recipe):
        net = lenet(recipe)
        net.fc1 = nn.Sequential(net.fc1, Poison(14))
        kept["net"] = net
        return net

    recipe = replace(LONG, optim=optim)
    with pytest.raises(NotFinite, match=r"the loss is nan at step 14 \(epoch 3\): the output of fc1\.1 is not finite"):
        fit(tmp_path / "bad", recipe, network=build, device="cuda", graphs=graphs)
    weights = {name: value.clone() for name, value in kept["net"].state_dict().items()}
    stop = lambda step: signal.raise_signal(signal.SIGTERM) if step == 13 else None  # noqa: E731
    with pytest.raises(train.Interrupted):
        fit(tmp_path / "good", recipe, network=lenet, device="cuda", graphs=graphs, on_step=stop)
    from bort.train import _checkpoint

    good = _checkpoint.load(tmp_path / "good/checkpoints").state["model"]
    for name, value in good.items():
        key = name.replace("fc1.", "fc1.0.")
        torch.testing.assert_close(weights[key].cpu(), value, rtol=2e-3, atol=1e-4)


def test_a_penalty_that_would_overflow(tmp_path):
    def build(recipe):
        net = lenet(recipe)
        with torch.no_grad():
            net.fc2.weight.mul_(1e14)
            net.head.weight.mul_(1e-14)
        return net

    with pytest.raises(NotFinite, match=r"the penalty of fc2\.weight overflows at step 1 "):
        fit(tmp_path, LONG, network=build, device="cuda")


@pytest.mark.parametrize("precision", ["auto", "float32"])
def test_resumed_on_a_gpu(tmp_path, precision):
    """channels_last weights come back with their momentum laid out alike, and dropout goes on where it was."""
    recipe = replace(LONG, precision=precision)
    whole = fit(tmp_path / "whole", recipe, device="cuda", graphs=False)
    stop = lambda step: signal.raise_signal(signal.SIGTERM) if step == 13 else None  # noqa: E731
    with pytest.raises(train.Interrupted):
        fit(tmp_path / "cut", recipe, device="cuda", on_step=stop, graphs=False)
    close(fit(tmp_path / "cut", recipe, device="cuda", graphs=False), whole, rtol=1e-2)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled(tmp_path):
    recipe = replace(RECIPE, optim=replace(SGD, schedule="cosine"))
    compiled = fit(tmp_path / "compiled", recipe, network=lenet, device="cuda", compile=True)
    close(compiled, fit(tmp_path / "plain", recipe, network=lenet, device="cuda"), rtol=1e-2)
