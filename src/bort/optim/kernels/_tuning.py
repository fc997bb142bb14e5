"""The sizes at which the kernels change the way they work, chosen by measurement on an H200 (docs/speed.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    scratch_bytes: int = 96 * 2**20
    """Scratch for one batch of weights. A larger weight is a batch of its own, with kernels of its own on Hopper."""
    short: int = 1024
    """Rows shorter than this are staged with their rounding errors at precision "high". Half precision keeps 11 bits of a
    weight: rounding changes a penalty that is 1e-3 per entry off the constraint by about 20%/√K, with the errors kept by
    nothing that can be measured."""
    long: int = 2**15
    """Rows longer than this are summed up in segments, since tensor cores truncate instead of rounding."""
    segment: int = 2**14
    block_loads: bool | None = None
    """Whether large weights go to the kernels of `_triton_hopper`; None: if the GPU has a tensor memory accelerator."""
    block_batches: int | None = None
    """From this short side on, weights of one shape go to these kernels too, in batches; None: none do. (It has not been
    measured on a GPU yet: benchmarks/kernels.py --block-batches 512.)"""
    wide_gram_tiles: bool | None = None
    """Whether these compute E in tiles of 128 × 256 instead of 128 × 128; None: where that takes no longer."""
