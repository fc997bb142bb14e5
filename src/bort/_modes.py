"""Looking at a model without leaving a trace, on it or on what it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in eval mode; afterwards each of its modules is in the mode it had."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def outputs_of(model: nn.Module, x: Tensor) -> Tensor:
    """What the model says of x: its logits, also where they come in a tuple or under that name. It gets a copy of x, since a
    first layer may work in place."""
    return logits_of(model(x * 1))


def logits_of(told: object) -> Tensor:
    found = told
    if isinstance(found, Mapping) and "logits" in found:
        found = found["logits"]
    elif hasattr(found, "logits"):
        found = found.logits
    elif isinstance(found, (tuple, list)) and found:
        found = found[0]
    if not isinstance(found, Tensor):
        raise ValueError(
            f"the model gives a {type(told).__name__} without logits in it: wrap it so that it gives a tensor"
        )
    return found
