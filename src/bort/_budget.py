"""How large a pass through a model may be, and how large one is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class MemoryBudget:
    """How large a pass through a model may be, in numbers (4 bytes each in float32). Batches are cut to fit."""

    forward: int = 2**25
    """In the largest tensor of a pass without gradients: 128 MiB, of which a few live at a time."""
    cpu: int = 2**22
    """The same on a CPU, if it is less, and a quarter of it on the way back: beyond some 16 MiB tensors leave the caches, and
    an image takes longer (ResNet-18, MobileNetV3, ViT-Tiny at 224²: 20 to 100% longer with 64 images than with 8)."""
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

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> with explain.memory_budget(forward=2**12, cpu=2**12):  # an image at a time
        ...     maps = explain.cam(model, x)
        >>> torch.allclose(maps, explain.cam(model, x), atol=1e-6)
        True
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
