"""Why a model fails on an input: what is unusual about the two, in a sentence with a remedy."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils.checkpoint import CheckpointError

_AROUND = "write a module around it whose forward takes one tensor of images"


_RECOMPUTES: Final = (
    "the model recomputes its activations on the way back (gradient checkpointing), where it cannot be followed: switch it "
    "off, in timm with model.set_grad_checkpointing(False), in transformers with model.gradient_checkpointing_disable(), in "
    "torchvision's DenseNet with memory_efficient=False"
)
_CHECKPOINTING: Final = ("grad_checkpointing", "gradient_checkpointing")  # modules' switches in timm and transformers


class Refused(ValueError):
    """Raised by code of bort's own that runs inside a model's forward pass, and passed on as it is."""


def explained(error: Exception, model: nn.Module, x: Tensor) -> Exception:
    """What to raise for an error of a model's own in a forward pass of x."""
    if isinstance(error, (Refused, torch.OutOfMemoryError, torch.AcceleratorError)):
        return error
    text = str(error).strip().rstrip(".") or "no message"
    return ValueError(f"the model fails with {type(error).__name__}: {text}. {_hint(model, x)}")


@contextmanager
def followed_back() -> Iterator[None]:
    """Inside, gradients go back along a pass that rules or hooks have changed. What is recomputed on the way back would be
    another pass: torch notices that, and here it is said in a sentence."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, CheckpointError) or "use_reentrant" in str(error):
            raise ValueError(_RECOMPUTES) from error
        raise


def about_checkpointing(model: nn.Module) -> str:
    """What to add to an error about a layer that a pass does not show; empty if gradient checkpointing is not why."""
    switches = (getattr(module, name, False) for module in model.modules() for name in _CHECKPOINTING)
    return f": {_RECOMPUTES}" if any(switch is True for switch in switches) else ""


def _hint(model: nn.Module, x: Tensor) -> str:
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), x.dtype)
    if x.dtype != dtype:
        return (
            f"The input is {x.dtype}, the model's weights are {dtype}: convert one of them, for example x.to({dtype})"
        )
    convolution = next((module for module in model.modules() if isinstance(module, _ConvNd)), None)
    if convolution is not None and x.ndim == len(convolution.kernel_size) + 1:
        return f"The input has the shape {tuple(x.shape)}: give a batch, x[None] if it is a single one"
    needed = _needed_arguments(model)
    if len(needed) > 1:
        return f"It is called with the images alone, and its forward needs {', '.join(needed)}: {_AROUND}"
    if _takes_tokens(model):
        return f"It takes the numbers of tokens, which have no pixels: {_AROUND}, or embeddings instead of tokens"
    if (
        isinstance(convolution, _ConvNd)
        and not isinstance(convolution, _ConvTransposeNd)
        and x.ndim == len(convolution.kernel_size) + 2
        and x.shape[1] != convolution.in_channels
    ):
        return (
            f"The input has {x.shape[1]} channels, the model's first convolution takes {convolution.in_channels}: "
            "give images with so many"
        )
    return f"Check that the model takes inputs of the shape {tuple(x.shape)}"


def _needed_arguments(model: nn.Module) -> list[str]:
    """The arguments of forward that have no default."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # of a scripted model, for example
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in kinds and p.default is p.empty]


def _takes_tokens(model: nn.Module) -> bool:
    """Whether the first layer with weights is a table of embeddings, or the first argument is called input_ids."""
    first = next((module for module in model.modules() if any(True for _ in module.parameters(recurse=False))), None)
    if isinstance(first, nn.Embedding):
        return True
    try:
        return next(iter(inspect.signature(model.forward).parameters), "") == "input_ids"
    except (TypeError, ValueError):
        return False
