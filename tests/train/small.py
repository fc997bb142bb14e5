"""A training of a second, for tests in this process and in others: 150 images, 5 steps an epoch, chance in the network."""

import signal
from unittest import mock

import torch
from torch import nn

from bort import nets, train
from bort.data import Dataset
from bort.train.recipes import Data, Net, Optim, Recipe

OPTIM = Optim("bort-s", lr=0.02, momentum=0.9, weight_decay=0.01, constraint=0.1)
RECIPE = Recipe("small", Net("lenet"), Data("mnist5k", 28, 1), OPTIM, epochs=3, batch=32, precision="float32")
STEPS = 15


def dataset():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 10
    bars = torch.zeros(200, 1, 28, 28)
    for row, label in enumerate(labels):
        bars[row, :, 2 * label : 2 * label + 6] = 150
    images = (bars + 100 * torch.rand(200, 1, 28, 28, generator=generator)).to(torch.uint8)
    return Dataset("mnist5k", images[:150], labels[:150], images[150:], labels[150:], "0123456789abcdef")


def build(recipe):
    net = nets.create("lenet")
    net.fc2 = nn.Sequential(net.fc2, nn.Dropout(0.2))
    return net


def fit(out, recipe=RECIPE, *, network=build, data=dataset, force=False, on_step=None, **runtime):
    with (
        mock.patch("bort.train._fit.data_of", return_value=data()),
        mock.patch("bort.train._fit.build", network),
        mock.patch("bort.train._run.build", network),
    ):
        how = train.Runtime(**({"device": "cpu", "keep": 100} | runtime))
        return train.fit(recipe, out, how, force=force, on_step=on_step)


def result(run):
    """What must not depend on how often a run was interrupted: weights to the bit, and the history without its clock."""
    weights = {name: value.clone() for name, value in run.model.state_dict().items()}
    return weights, [{key: value for key, value in record.items() if key != "seconds"} for record in run.history]


def assert_same(one, other):
    (weights, history), (weights_too, history_too) = result(one), result(other)
    assert history == history_too
    for name in weights:
        assert torch.equal(weights[name], weights_too[name]), name


def stop_at(step, how=signal.SIGTERM):
    """For ``on_step``: a signal after that step."""
    return lambda now: signal.raise_signal(how) if now == step else None


def signal_in_test(patch, call):
    """A SIGINT in the given batch of test images, counted over all epochs."""
    from bort.train import _evaluate

    real, seen = _evaluate.F.cross_entropy, []

    def loss(*args, **kwargs):
        if kwargs.get("reduction") == "sum":  # the test's; training takes the mean
            seen.append(1)
            if len(seen) == call:
                signal.raise_signal(signal.SIGINT)
        return real(*args, **kwargs)

    patch.setattr(_evaluate.F, "cross_entropy", loss)
