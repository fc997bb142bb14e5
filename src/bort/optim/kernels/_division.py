"""Which weights of a list the kernels take, and the tables that are kept for them."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bort.optim._spec import PenaltySpec, Weight
from bort.optim.kernels._tuning import Tuning

if TYPE_CHECKING:
    from bort.optim.kernels._tiles import Tiling

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_SMALLEST_SIDE = 8  # a few rows would fill a tile with padding
_LONGEST_SIDE = 2**24  # offsets inside a tile of 128 rows are int32
_LARGEST_CACHE = 16


@functools.cache
def available(device: torch.device) -> bool:
    """Whether Triton is installed and the device has the tensor cores that the kernels are written for."""
    return (
        device.type == "cuda"
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and importlib.util.find_spec("triton") is not None
    )


def is_capturing() -> bool:
    """Whether the current stream is being captured into a CUDA graph."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


@dataclass(frozen=True, slots=True)
class Division:
    """A list of weights, divided between the kernels and plain torch. Weights are named by their position in the list: what
    is kept from step to step must not keep weights alive."""

    parts: tuple[tuple[tuple[int, ...], Tiling], ...]
    """The weights that the kernels take, those of one dtype together, with their tables."""
    rest: tuple[int, ...]

    def tables(self) -> list[Tensor]:
        return [
            table
            for _, tiling in self.parts
            for batch in tiling.batches
            for table in (batch.matrices, batch.stage_tiles, batch.gram_tiles, *batch.apply_tiles)
        ]


class Divisions:
    """The divisions of the last few lists: in a mixture of experts other weights have gradients at each step.

    A division is made anew when a weight has moved in memory or changed its shape.
    """

    def __init__(self, available: Callable[[torch.device], bool], tuning: Tuning) -> None:
        self._available, self._tuning = available, tuning
        self._kept: dict[Any, Division] = {}
        self._captured: dict[Any, Division] = {}
        """Those that a CUDA graph has the addresses of: nobody tells when it is gone, so they stay."""

    def of(self, weights: list[Weight], spec: PenaltySpec) -> Division:
        if not _takes_spec(spec):
            return Division((), tuple(range(len(weights))))
        key = (
            spec.precision,
            *[(slot, p.data_ptr(), p.shape, p.stride(), p.dtype, _gradient_fits(p, spec)) for slot, p in weights],
        )
        division = self._kept.get(key) or self._captured.get(key)
        if division is None:
            taken = self._taken(weights, spec)
            if taken and is_capturing():
                # No step before the capture has made these tables, and now they cannot be uploaded.
                return Division((), tuple(range(len(weights))))
            if len(self._kept) >= _LARGEST_CACHE:
                self._kept.clear()
            division = self._kept[key] = self._make(weights, taken, keep_errors=spec.precision == "high")
        if is_capturing():
            self._captured[key] = division
        return division

    def _taken(self, weights: list[Weight], spec: PenaltySpec) -> dict[torch.dtype, list[int]]:
        """Positions of the weights that the kernels take."""
        device = weights[0][1].device  # where the residuals are; weights on other devices are left to plain torch
        positions: dict[torch.dtype, list[int]] = {}
        for position, (_, p) in enumerate(weights):
            if p.device == device and self._available(device) and _takes_weight(p) and _gradient_fits(p, spec):
                positions.setdefault(p.dtype, []).append(position)
        return positions

    def _make(self, weights: list[Weight], taken: dict[torch.dtype, list[int]], *, keep_errors: bool) -> Division:
        parts = []
        for positions in taken.values():
            from bort.optim.kernels._tiles import make_tiling  # imports Triton, which may not be installed

            members = [weights[position] for position in positions]
            parts.append((tuple(positions), make_tiling(members, keep_errors=keep_errors, tuning=self._tuning)))
        rest = set(range(len(weights))).difference(*taken.values())
        return Division(tuple(parts), tuple(sorted(rest)))


def _takes_spec(spec: PenaltySpec) -> bool:
    return (
        spec.mode == "full"
        and spec.blocks == 1
        and spec.precision != "highest"
        and not spec.schedule_free  # z has to be moved as well, by a direction that the kernels do not return
        and not torch.is_grad_enabled()
    )


def _takes_weight(p: Tensor) -> bool:
    rows, columns = p.shape[0], p.numel() // p.shape[0]
    return (
        p.dtype in _DTYPES
        and p.data_ptr() != 0  # a tensor that wraps others
        and min(rows, columns) >= _SMALLEST_SIDE
        and max(rows, columns) < _LONGEST_SIDE
        and p.stride(0) == columns
        and _is_dense(p[0])
    )


def _gradient_fits(p: Tensor, spec: PenaltySpec) -> bool:
    """Whether the gradient, if the kernels read it, has an address, and the weight's dtype (``grad_dtype`` allows others)."""
    return spec.decoupled or p.grad is None or (p.grad.dtype is p.dtype and p.grad.data_ptr() != 0)


def _is_dense(row: Tensor) -> bool:
    """Whether a tensor fills its memory without gaps, in any order: the order of the columns does not matter."""
    order = sorted(range(row.ndim), key=row.stride, reverse=True)
    return row.permute(order).is_contiguous()
