"""Shared by `invert`, `explain` and `measure`, which run models of others and must leave them as they were: eval mode for a
block, logits out of whatever a model returns, checked inputs and classes, and how many images fit into one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode

Target = Tensor | int | None
"""A class for each image, one for all, or None: the class that the model predicts."""

Progress = Callable[[int, int], None]
"""Called with (done, total) while a slow method runs: in the method's own units, ``done`` never falling and equal to
``total`` at the end. To cancel the method, raise an exception there, for example :class:`Cancelled`."""


class Cancelled(Exception):
    """Raised by a ``progress`` function to end a method early. The model is left as it was."""


_COMPILED = "_orig_mod"  # the name under which torch.compile keeps a module
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside what torch.compile, DataParallel and DistributedDataParallel put around it. Hooks and torch function
    modes see the layers of that one only."""
    while True:
        compiled = model._modules.get(_COMPILED)
        if compiled is not None:
            model = compiled
        elif isinstance(model, _WRAPPERS):
            model = model.module
        else:
            return model


def uncompiled_name(name: str) -> str:
    """The name of a layer or parameter of an unwrapped model without what torch.compile of single layers put into it."""
    return ".".join(part for part in name.split(".") if part != _COMPILED)


def spellings(name: str) -> tuple[str, str]:
    """A name that was asked for, as it is, and without what wrappers put into it."""
    plain = uncompiled_name(name)
    while plain.startswith("module."):
        plain = plain.removeprefix("module.")
    return name, plain


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in eval mode, and compiled parts of it run uncompiled, since compiled ones run without hooks;
    afterwards each of its modules is in the mode that it had before."""
    modes = {module: module.training for module in model.modules()}
    inner = unwrapped(model).modules()
    is_compiled = any(_COMPILED in module._modules or module._compiled_call_impl is not None for module in inner)
    try:
        model.eval()
        with torch.compiler.set_stance("force_eager") if is_compiled else nullcontext():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def outputs_of(model: nn.Module, x: Tensor) -> Tensor:
    """The model's logits for x."""
    return logits_of(run(model, x))


def run(model: nn.Module, x: Tensor) -> Any:
    """What the model returns for x, of which it gets a copy, since its first layer may work in place. An error of the model's
    says what may be wrong with x."""
    try:
        return unwrapped(model)(x * 1)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        hint = _hint(model, x)
        if hint is None:
            raise
        raise ValueError(f"the model fails with {type(error).__name__}: {str(error).strip()}. {hint}") from error


def _hint(model: nn.Module, x: Tensor) -> str | None:
    """What is unusual about an input that a model has failed on."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), x.dtype)
    if x.dtype != dtype:
        return (
            f"The input is {x.dtype}, the model's weights are {dtype}: convert one of them, for example x.to({dtype})"
        )
    convolution = next((module for module in model.modules() if isinstance(module, _ConvNd)), None)
    if convolution is not None and x.ndim == len(convolution.kernel_size) + 1:
        return f"The input has the shape {tuple(x.shape)}: give a batch, x[None] if it is a single one"
    return None


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


ScoreFunction = Callable[[Tensor, Tensor], Tensor]
"""From logits (N, classes) and the classes (N,) that are looked at, (N,) scores."""


def probabilities_of(logits: Tensor) -> Tensor:
    """Of the classes in the last dimension: softmax; sigmoid of a single logit, whose softmax would be 1 for every image."""
    return logits.sigmoid() if logits.shape[-1] == 1 else logits.softmax(dim=-1)


def check_input(model: nn.Module, x: Tensor) -> None:
    """Refuse an input that would fail later with an unclear error, or give a result without meaning."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        remedy = (
            ". For a model that takes another kind of input write a module around it whose forward takes one tensor"
        )
        raise TypeError(
            f"the input must be a tensor of floating-point numbers, not {getattr(x, 'dtype', type(x).__name__)}"
            + ("" if isinstance(x, Tensor) else remedy)
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
    cpu: int = 2**22
    """The same on a CPU, if it is less: beyond some 16 MiB tensors leave the caches, and an image takes longer (ResNet-18,
    MobileNetV3, ViT-Tiny at 224²: 20 to 100% longer with 64 images than with 8)."""
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
    *, forward: int | None = None, cpu: int | None = None, backward: int | None = None, kept: int | None = None
) -> Iterator[None]:
    """Inside, other limits hold: ``with memory_budget(forward=2**22): explain.rise(model, x)``.

    The keywords are the fields of :class:`MemoryBudget`; one that is not given stays as it is. They change memory and time,
    and results by rounding at most.
    """
    limits = {"forward": forward, "cpu": cpu, "backward": backward, "kept": kept}
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
    forward = min(budget.forward, budget.cpu) if x.device.type == "cpu" else budget.forward
    return max(1, budget.kept // max(1, cost.total) if backward else forward // max(1, cost.largest))
