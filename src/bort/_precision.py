"""The precision of bort's own matrix products, independent of what the rest of the program has chosen for its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def own_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Inside the block, float32 matrices are multiplied in TF32 on a GPU, or in full float32 if ``precision`` is "highest"
    or the product runs on a CPU. Autocast is off: it would round the Gram matrix before I is subtracted from it."""
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    inside = ("ieee" if precision == "highest" else "tf32", "ieee")
    # Not torch.set_float32_matmul_precision: it raises where the program has set fp32_precision itself.
    outside = [backend.fp32_precision for backend in backends]
    try:
        for backend, value in zip(backends, inside, strict=True):
            backend.fp32_precision = value
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        for backend, value in zip(backends, outside, strict=True):
            backend.fp32_precision = value
