"""CUDA graphs of our own: what a step launches, recorded once and then launched as one.

Recording executes nothing. It differs from ``with torch.cuda.graph(…)`` in that it neither waits for the device nor empties
torch's cache: it happens in the middle of a training.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from bort.optim.kernels import is_capturing

SWITCH = "BORT_GRAPHS"
"""The environment variable that turns recording off, if it is 0."""

# Two threads must not record on the same stream.
_LOCK = threading.Lock()
_STREAMS: dict[torch.device, torch.cuda.Stream] = {}
_KEEPERS: dict[torch.device, torch.cuda.CUDAGraph] = {}


class Recorder(Protocol):
    """What `DeviceSteps` needs of CUDA graphs. The tests have one that works on CPU tensors."""

    def serves(self, device: torch.device) -> bool:
        """Whether the numbers of a step are to lie in the memory of this device."""

    def is_capturing(self) -> bool:
        """Whether somebody else is recording what is launched now."""

    def is_wanted(self) -> bool:
        """Whether steps are to be recorded at all."""

    def record(self, launches: Callable[[], None], device: torch.device, *, with_products: bool) -> Callable[[], None]:
        """What repeats the launches. ``with_products``: torch's own matrix products are among them. Raises RuntimeError if
        they cannot be recorded."""

    def use(self, memory: list[torch.Tensor], seen: set[object]) -> None:
        """Before memory is used: the stream may be another one than the memory was made for. ``seen`` are those so far."""


class CudaRecorder:
    def serves(self, device: torch.device) -> bool:
        return device.type == "cuda"

    def is_capturing(self) -> bool:
        return is_capturing()

    def is_wanted(self) -> bool:
        return os.environ.get(SWITCH) != "0" and torch.version.hip is None

    def record(self, launches: Callable[[], None], device: torch.device, *, with_products: bool) -> Callable[[], None]:
        with _LOCK, torch.cuda.device(device), _without_collection():
            if device not in _STREAMS:
                _STREAMS[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            with torch.cuda.stream(_STREAMS[device]):
                if with_products:
                    _hold_workspaces(device)
                return _captured(launches).replay

    def use(self, memory: list[torch.Tensor], seen: set[object]) -> None:
        stream = torch.cuda.current_stream(memory[0].device)
        if stream not in seen:
            for tensor in memory:
                tensor.record_stream(stream)  # when it is freed, nobody gets it before this stream is done with it
            seen.add(stream)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage collection: a graph that is destroyed, or an event, would be a call that a capture does not allow."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _captured(launches: Callable[[], None], pool: Any = None) -> torch.cuda.CUDAGraph:
    """On the current stream. Memory that is allocated meanwhile belongs to the graph, or to the one whose pool it is."""
    graph = torch.cuda.CUDAGraph()
    # "thread_local": other threads may allocate memory and ask for events meanwhile.
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        launches()
    finally:
        graph.capture_end()
    return graph


def _hold_workspaces(device: torch.device) -> None:
    """torch keeps a workspace of cuBLAS for each stream, allocated by the first product there. A graph that uses the one of
    another graph would use freed memory when that one is gone and torch has dropped its workspaces, as its compiler makes it
    do. So it belongs to a graph that stays: here is the first product, in the memory of that graph."""

    def products() -> None:
        x = torch.empty(1, 8, 8, device=device)
        torch.mm(x[0], (x @ x.mT)[0])

    keeper = _KEEPERS.get(device)
    graph = _captured(products, None if keeper is None else keeper.pool())
    _KEEPERS.setdefault(device, graph)
