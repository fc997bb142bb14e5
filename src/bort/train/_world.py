"""The processes of a training: one, or those that torchrun started."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class World:
    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """The values summed over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any process."""
        return bool(self.total(torch.tensor(float(flag), device=self.device)).item()) if self.size > 1 else flag

    def from_first(self, value: Any) -> Any:
        """The first process's value, on all processes; none goes on before the first has come here."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def share_buffers(self, net: nn.Module) -> None:
        """Give all processes the first one's buffers: running statistics of BatchNorm differ between processes, and the first
        one's are tested and saved."""
        if self.size > 1:
            for buffer in net.buffers():
                dist.broadcast(buffer, 0)


def full(tensor: Tensor) -> Tensor:
    """All of a tensor that may be sharded (a DTensor); then all processes have to call this together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


@contextmanager
def join(device: str) -> Iterator[World]:
    """The world of this process: joins the process group that torchrun describes, and leaves it at the end."""
    size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    name = device if device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(name)
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
        # Its functions keep the process group that there is when they are defined, as defaults. DDP imports it; were that
        # later than this, the group's threads would outlive it, and one of them can abort Python's end.
        importlib.import_module("torch.distributed.nn")
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield World(place, rank, size)
        dist.barrier()  # gloo may abort the other processes when one leaves early
    finally:
        if ours:
            dist.destroy_process_group()
