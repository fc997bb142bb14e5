"""Shared by `invert`, `explain` and `measure`, which run models of others and must leave them as they were: eval mode for a
block, logits out of whatever a model returns, checked inputs and classes, and how many images fit into one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Target = Tensor | int | None
"""A class for each image, one for all, or None: the class that the model predicts."""

Progress = Callable[[int, int], None]
"""Called with (done, total) while a slow method runs: in the method's own units, ``done`` never falling and equal to
``total`` at the end. To cancel the method, raise an exception there, for example :class:`Cancelled`."""


class Cancelled(Exception):
    """Raised by a ``progress`` function to end a method early. The model is left as it was."""


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in eval mode; afterwards each of its modules is in the mode that it had before."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def outputs_of(model: nn.Module, x: Tensor) -> Tensor:
    """The model's logits for x. The model gets a copy of x, since its first layer may work in place."""
    return logits_of(model(x * 1))


def logits_of(output: object) -> Tensor:
    """The logits in a model's output: the tensor itself, the first of a tuple, or the one under the name "logits"."""
    logits = output
    if isinstance(logits, Mapping) and "logits" in logits:
        logits = logits["logits"]
    elif hasattr(logits, "logits"):
        logits = logits.logits
    elif isinstance(logits, (tuple, list)) and logits:
        logits = logits[0]
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"the model gives a {type(output).__name__} without logits in it: wrap it so that it gives a tensor"
        )
    return logits


def check_input(model: nn.Module, x: Tensor) -> None:
    """Refuse an input that would fail later with an unclear error, or give a result without meaning."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(
            f"the input must be a tensor of floating-point numbers, not {getattr(x, 'dtype', type(x).__name__)}"
        )
    if not x.ndim or not len(x):
        raise ValueError(f"the input of shape {tuple(x.shape)} has no images in it")
    if not torch.isfinite(x).all():
        raise ValueError("the input has NaN or Inf in it")
    device = next((p.device for p in model.parameters()), x.device)
    if device != x.device:
        raise ValueError(f"the input is on {x.device}, the model on {device}: move one of them")


def check_images(model: nn.Module, x: Tensor) -> None:
    """`check_input`, and four dimensions."""
    check_input(model, x)
    if x.ndim != 4:
        raise ValueError(f"images of shape {tuple(x.shape)}: give them as (N, channels, height, width)")


def targets_of(outputs: Tensor, target: Target) -> Tensor:
    """(N,) classes, checked; those that the outputs predict if none are given."""
    if outputs.ndim != 2:
        raise ValueError(f"the model gives outputs of shape {tuple(outputs.shape)}, not (N, classes)")
    count, classes = outputs.shape
    if target is None:
        return outputs.argmax(dim=1)
    chosen = torch.as_tensor(target, device=outputs.device)
    if chosen.is_floating_point() or chosen.shape not in ((), (count,)):
        raise ValueError(
            f"target of shape {tuple(chosen.shape)}: give one class, or one for each of the {count} images"
        )
    chosen = chosen.long().expand(count)
    if chosen.min() < 0 or chosen.max() >= classes:
        wrong = chosen[(chosen < 0) | (chosen >= classes)][0].item()
        raise ValueError(f"target={wrong}: the model has {classes} classes, 0 to {classes - 1}")
    return chosen


@torch.no_grad()
def classes_of(model: nn.Module, x: Tensor, target: Target) -> Tensor:
    """(N,) classes, checked; what the model predicts for each image if none are given."""
    parts = torch.split(x, images_at_once(model, x))
    with evaluating(model):
        return targets_of(torch.cat([outputs_of(model, part) for part in parts]), target)


@dataclass(frozen=True)
class MemoryBudget:
    """How large a pass through a model may be, in numbers (4 bytes each in float32). Batches are cut to fit."""

    forward: int = 2**25
    """In the largest tensor of a pass without gradients: 128 MiB, of which a few live at a time."""
    backward: int = 2**26
    """In the largest tensor on the way back to the input: 256 MiB, of which a few live at a time."""
    kept: int = 2**28
    """In all tensors of a forward pass together, where they are kept for a backward pass: 1 GiB."""


_BUDGET: ContextVar[MemoryBudget] = ContextVar("bort memory budget", default=MemoryBudget())  # noqa: B039, immutable


def current_budget() -> MemoryBudget:
    """The limits that hold here."""
    return _BUDGET.get()


@contextmanager
def memory_budget(
    *, forward: int | None = None, backward: int | None = None, kept: int | None = None
) -> Iterator[None]:
    """Inside, other limits hold: ``with memory_budget(forward=2**22): explain.rise(model, x)``.

    The keywords are the fields of :class:`MemoryBudget`; one that is not given stays as it is. They change memory and time,
    and results by rounding at most.
    """
    limits = {"forward": forward, "backward": backward, "kept": kept}
    token = _BUDGET.set(replace(_BUDGET.get(), **{name: limit for name, limit in limits.items() if limit is not None}))
    try:
        yield
    finally:
        _BUDGET.reset(token)


class TensorCount(TorchFunctionMode):
    """While active, counts the numbers in the tensors that torch functions return: a measure of a pass's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        """Numbers in the largest tensor."""
        self.total = 0
        """Numbers in all of them together."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.count(result)
        return result

    def count(self, result: Tensor) -> None:
        """Add a tensor."""
        numbers = Tensor.numel(result)
        self.largest = max(self.largest, numbers)
        self.total += numbers


def images_at_once(model: nn.Module, x: Tensor, *, backward: bool = False) -> int:
    """How many images the model can take in one pass within the memory budget, estimated by a pass of one. ``backward``: in a
    pass that keeps its tensors for gradients."""
    cost, budget = TensorCount(), current_budget()
    with torch.no_grad(), evaluating(model), cost:
        outputs_of(model, x[:1])
    return max(1, budget.kept // max(1, cost.total) if backward else budget.forward // max(1, cost.largest))
