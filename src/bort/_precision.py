"""The precision of the penalty's own products, whatever the rest of the program has chosen for its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def own_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Float32 products at ``precision`` for a block: no autocast, which would round the Gram matrix before I is taken
    off it; TF32 on a GPU unless "highest"; full float32 on a CPU."""
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    wanted = ("ieee" if precision == "highest" else "tf32", "ieee")
    # Not torch.set_float32_matmul_precision: it refuses to work beside these, which a program may have used itself.
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend, value in zip(backends, wanted, strict=True):
            backend.fp32_precision = value
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.fp32_precision = value
