"""Subjects and networks that commands find by import path."""

import signal
import time

import torch
from torch import nn

from bort import nets
from bort.data import View
from bort.subject import Subject
from tests.train.small import dataset


def model():
    torch.manual_seed(0)
    return nets.create("lenet")


def subject():
    """A network that no run has trained, with everything that a command may ask for."""
    data = dataset()
    view = data.view(28)
    return Subject("mine", model(), view, lambda count: data.examples(count, view))


def untrained_head():
    """Its last layer is 0: every logit is 0 for every image."""
    network = subject()
    for p in list(network.model.children())[-1].parameters():
        torch.nn.init.zeros_(p)
    return network


def with_a_view_only():
    return Subject("mine", model(), View(28, 1, (0.5,), (0.5,)))


class _OneLogit(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(1, 1, 28)

    def forward(self, x):
        return self.body(x).flatten(1) * 0 - 2


def one_logit():
    """Its logit is -2: of class 1 it says 12%."""
    return Subject("one", _OneLogit(), View(28, 1, (0.5,), (0.5,), ("cat", "dog")))


class _Stopping(nn.Module):
    """Sends the process a SIGINT in its third pass."""

    def __init__(self, classes):
        super().__init__()
        self.passes = 0
        self.head = nn.Linear(28 * 28, classes)

    def forward(self, x):
        self.passes += 1
        if self.passes == 3:
            signal.raise_signal(signal.SIGINT)
        return self.head(x.flatten(1))


def stopping(channels, classes, image_size):
    return _Stopping(classes)


class _Sleeping(nn.Module):
    """Takes a minute for a white image."""

    def __init__(self):
        super().__init__()
        self.body = model()

    def forward(self, x):
        if x.min() > 0.9:
            time.sleep(60)
        return self.body(x)


def sleeping():
    return Subject("mine", _Sleeping(), View(28, 1, (0.0,), (1.0,)))


def interrupted():
    """Ctrl-C comes while the network is read."""
    signal.raise_signal(signal.SIGINT)
