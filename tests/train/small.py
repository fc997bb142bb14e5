"""A training of a second: 150 images, 5 steps an epoch, dropout in the network.

Its network and its data are functions of this module, named in the recipe by import path. So every process that has the
repository on its path can train it and load it again, and other tests can name these functions in recipes of their own.
"""

import signal
from dataclasses import replace

import torch
from torch import nn

from bort import nets, train
from bort.data import Dataset
from bort.train.recipes import Data, Net, Optim, Recipe

STEPS = 15


def dataset():
    """Ten classes of 28 × 28: a bar at one of ten heights, with noise. For ``Data("tests.train.small:dataset", 28, 1)``."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 10
    bars = torch.zeros(200, 1, 28, 28)
    for row, label in enumerate(labels):
        bars[row, :, 2 * label : 2 * label + 6] = 150
    images = (bars + 100 * torch.rand(200, 1, 28, 28, generator=generator)).to(torch.uint8)
    return Dataset("bars", images[:150], labels[:150], images[150:], labels[150:], "0123456789abcdef")


def lenet_with_dropout(channels, classes, image_size):
    """For ``Net("tests.train.small:lenet_with_dropout")``: a network whose training draws random numbers."""
    net = nets.create("lenet", channels=channels, classes=classes, image_size=image_size)
    net.fc2 = nn.Sequential(net.fc2, nn.Dropout(0.2))
    return net


OPTIM = Optim("bort-s", lr=0.02, momentum=0.9, weight_decay=0.01, constraint=0.1)
RECIPE = Recipe(
    "small",
    Net("tests.train.small:lenet_with_dropout"),
    Data("tests.train.small:dataset", 28, 1),
    OPTIM,
    epochs=3,
    batch=32,
    precision="float32",
)
LENET = replace(RECIPE, net=Net("lenet"))
"""Without dropout."""


def fit(out, recipe=RECIPE, *, force=False, on_step=None, **runtime):
    """`train.fit` on the CPU, keeping all checkpoints."""
    return train.fit(
        recipe, out, train.Runtime(**({"device": "cpu", "keep": 100} | runtime)), force=force, on_step=on_step
    )


def stripes(path):
    """A folder of two classes, 14 and 6 images of 40 × 40."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)
    for split, count in (("train", 7), ("val", 3)):
        for label in range(2):
            folder = path / split / "ab"[label]
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 80, (40, 40, 3), dtype=np.uint8)
                pixels[:: 3 if label else 8] += 150
                Image.fromarray(pixels).save(folder / f"{number}.png")


def saved_steps(out):
    """The steps of the checkpoints in a run's folder."""
    return [int(path.name[5:14]) for path in sorted((out / "checkpoints").glob("step-*"))]


def result(run):
    """What must not depend on how often a run was interrupted: weights to the bit, and the history without its clock."""
    weights = {name: value.clone() for name, value in run.model.state_dict().items()}
    return weights, [{key: value for key, value in record.items() if key != "seconds"} for record in run.history]


def assert_same(one, other):
    (weights, history), (other_weights, other_history) = result(one), result(other)
    assert history == other_history
    for name in weights:
        assert torch.equal(weights[name], other_weights[name]), name


def stop_at(step, number=signal.SIGTERM):
    """For ``on_step``: a signal after that step."""
    return lambda now: signal.raise_signal(number) if now == step else None


def signal_in_test(monkeypatch, batch):
    """A SIGINT in the given batch of test images, counted over all epochs. The sum of cross-entropies is the test's: training
    takes the mean."""
    functional, calls = torch.nn.functional, []
    cross_entropy = functional.cross_entropy

    def counted(*args, **kwargs):
        if kwargs.get("reduction") == "sum":
            calls.append(1)
            if len(calls) == batch:
                signal.raise_signal(signal.SIGINT)
        return cross_entropy(*args, **kwargs)

    monkeypatch.setattr(functional, "cross_entropy", counted)
