"""The precision of the penalty's own float32 products, whatever the rest of the program has chosen for its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """torch.set_float32_matmul_precision, for a block: "highest" fp32, "high" TF32, "medium" bf16 where there are units."""
    before = torch.get_float32_matmul_precision()
    if precision == before:
        yield
        return
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
