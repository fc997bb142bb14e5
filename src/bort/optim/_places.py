"""Where tensors lie in memory, and whether they still do: what a recorded launch depends on.

An address alone does not say enough: a narrowed or transposed weight begins where the whole one did, and memory that has been
freed is given to other tensors. With the same shape, strides and dtype at the same address, tensors are the same to a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import torch
from torch import Tensor

from bort.optim._spec import Weight

Place: TypeAlias = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype]
"""Slot, address, shape, strides and dtype."""


def places(weights: Iterable[Weight]) -> tuple[Place, ...]:
    return tuple((slot, p.data_ptr(), tuple(p.shape), p.stride(), p.dtype) for slot, p in weights)


def are_at(weights: list[Weight], before: tuple[Place, ...]) -> bool:
    """Whether these are the weights that were at these places, and are still there. (The stride of a side of 1 may be another
    one: it means nothing.) Runs at every step, for all weights."""
    if len(weights) != len(before):
        return False
    try:
        for (slot, p), (old_slot, address, shape, strides, dtype) in zip(weights, before, strict=True):
            if slot != old_slot or p.data_ptr() != address or p.dtype is not dtype:
                return False
            _assert_size_stride(p, shape, strides)
    except AssertionError:
        return False
    return True


def _compare(p: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert p.shape == shape
    assert p.stride() == strides


try:
    # What torch's compiler puts before its kernels: a quarter of the time of the comparison above.
    from torch._C._dynamo.guards import assert_size_stride as _assert_size_stride
except ImportError:
    _assert_size_stride = _compare  # type: ignore[assignment]
