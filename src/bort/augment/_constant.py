"""Fixed numbers on a device."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor


@cache
def constant(values: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of fixed numbers, made once for each device: a copy from the host cannot be captured in a CUDA graph."""
    return torch.tensor(values, dtype=dtype, device=device)
