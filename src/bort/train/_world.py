"""The processes of a training: one, or those that torchrun started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes: files, lines, progress."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """Summed over the processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def any(self, flag: bool) -> bool:
        """Whether it is so on any process."""
        return bool(self.total(torch.tensor(float(flag), device=self.device)).item()) if self.size > 1 else flag

    def from_first(self, value: Any) -> Any:
        """The first process's value, on all."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]


@contextmanager
def join(device: str) -> Iterator[World]:
    """The world this process is in; it leaves it at the end."""
    size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    kind = device if device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(kind)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} is not a device torch knows: {str(error).splitlines()[0]}") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}: torch sees no CUDA device here; use cpu or auto")
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if size == 1:
        yield World(place)
        return
    ours = not dist.is_initialized()
    if ours:
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield World(place, rank, size)
        dist.barrier()  # a process that leaves early can make gloo abort the others
    finally:
        if ours:
            dist.destroy_process_group()
