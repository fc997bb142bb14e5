"""A network: a function (or class) of channels, classes, image_size and options of its own that returns a module."""

from torch import nn


def two_convolutions(channels: int, classes: int, image_size: int, width: int = 8) -> nn.Module:
    """``--net.name bort_example:two_convolutions``; ``width`` is an entry of the recipe's net.options."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, classes),
    )
