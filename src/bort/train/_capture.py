"""Steps in CUDA graphs: one launch instead of hundreds or thousands, so that no network waits for Python.

Everything that a step does is in the graph: gathering, augmenting and normalising the images, forward, backward, the update.
What changes from step to step is in device memory: which images (`Batch.inputs`), the learning rate (a tensor), the counts of
the optimizer, and the state of the random generator that drop path and dropout draw from.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from bort.train._feed import Batch
from bort.train._runtime import Runtime
from bort.train._step import Step
from bort.train._world import World

_WARM_UP = 3  # eager steps before the first capture: libraries and the optimizer allocate their memory in them
_DDP_WARM_UP = 11  # DistributedDataParallel rearranges its buckets and measures in the first ten
_MOST_GRAPHS = 4
"""Batches of so many sizes are captured. Further ones, after images that could not be read, are too rare to be worth it."""


def reason_against(runtime: Runtime, world: World, *, sharded: bool) -> str | None:
    """Why the steps of a training cannot be captured; None if they can."""
    if world.device.type != "cuda":
        return f"CUDA graphs need a GPU, this is {world.device.type}"
    if not runtime.graphs:
        return "graphs=False"
    if sharded:
        return "sharded weights (fsdp2) are gathered and freed at each step"
    if world.size > 1 and dist.get_backend() != "nccl":
        return f"the processes exchange gradients by {dist.get_backend()}, only NCCL can be captured"
    return None


class CapturedStep:
    """Calls a step, from a CUDA graph as soon as it has been captured.

    There is a graph for each size of batch: the usual one, and that of the last batch of an epoch. The first steps of each
    size run eagerly, then one is captured. (To read the next batch beside the step, on another stream, makes both slower:
    docs/training.md.)
    """

    def __init__(self, step: Step, world: World, say: Callable[[str], None] = print) -> None:
        self._step, self._world, self._say = step, world, say
        self._warm_up = _WARM_UP if world.size == 1 else _DDP_WARM_UP
        self._eager_steps: dict[Hashable, int] = {}
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, dict[str, Tensor]]] = {}
        self._pool: Any = None
        self._is_eager = False

    def close(self) -> None:
        """Free the graphs: NCCL's process group cannot be left while graphs with its kernels exist."""
        self._graphs.clear()

    def __call__(self, batch: Batch) -> None:
        if self._is_eager:
            with self._side_stream():  # where DDP's hooks are
                self._step(batch)
            return
        key = batch.count, batch.weight
        if key not in self._graphs:
            if not self._graphs and not self._eager_steps and self._waits_for_the_device(batch):
                self._is_eager = True
                with self._side_stream():
                    self._step(batch)
                return
            eager_steps = self._eager_steps.get(key, 0)
            if eager_steps < (1 if self._graphs else self._warm_up) or len(self._graphs) == _MOST_GRAPHS:
                self._eager_steps[key] = eager_steps + 1
                with self._side_stream():
                    self._step(batch)
                return
            self._graphs[key] = self._captured(batch)
        graph, inputs = self._graphs[key]
        for name, tensor in inputs.items():
            tensor.copy_(batch.inputs[name], non_blocking=True)
        graph.replay()

    def _captured(self, batch: Batch) -> tuple[torch.cuda.CUDAGraph, dict[str, Tensor]]:
        """A graph, and the tensors that it reads the batch from. Capturing does not execute the step."""
        graph = torch.cuda.CUDAGraph()
        inputs = {name: tensor.to(self._step.device, copy=True) for name, tensor in batch.inputs.items()}
        # Graphs are replayed one after the other, so they can share their memory.
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        stream = side_stream(self._step.device)
        torch.cuda.synchronize()
        try:
            # "thread_local": other threads may pin memory for the next batches while this one captures.
            with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                self._step(replace(batch, inputs=inputs))
        except RuntimeError as error:
            raise RuntimeError(
                f"the step cannot be captured in a CUDA graph ({str(error).splitlines()[0]}). Start again with --no-graphs; "
                "the checkpoints before are intact"
            ) from error
        return graph, inputs

    def _waits_for_the_device(self, batch: Batch) -> bool:
        """Whether the network reads a number back to the host, as `if x.max() > 0` does, which cannot be captured. Found by
        passes that leave no trace: nothing is updated, and buffers and the random generator are put back. They do without
        DDP, which itself waits in its first passes, while it arranges its buckets."""
        step = self._step
        model = step.model.module if isinstance(step.model, DistributedDataParallel) else step.model
        buffers = [buffer.clone() for buffer in step.model.buffers()]
        generator = torch.cuda.get_rng_state(step.device)
        reason = ""
        with self._side_stream(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode")
            inputs, targets = step.feed.read(batch)
            try:
                for mode in ("default", "error"):  # first passes may wait: libraries choose and compile their kernels
                    torch.cuda.set_sync_debug_mode(mode)
                    step.optimizer.zero_grad()
                    step.loss_of(model, inputs, targets).backward()  # type: ignore[no-untyped-call]
            except RuntimeError as error:
                if "synchronizing" not in str(error):
                    raise
                reason = "the network waits for the device"
            finally:
                torch.cuda.set_sync_debug_mode("default")
            step.optimizer.zero_grad()
            with torch.no_grad():
                for buffer, before in zip(step.model.buffers(), buffers, strict=True):
                    buffer.copy_(before)
        torch.cuda.set_rng_state(generator, step.device)
        is_waiting = self._world.any(bool(reason)) if dist.is_initialized() else bool(reason)
        if is_waiting and self._world.is_first:
            self._say(f"steps: launched one kernel at a time, {reason or 'as on another process'}")
        return is_waiting

    @contextmanager
    def _side_stream(self) -> Iterator[None]:
        """Not the default stream: torch requires another one for what comes before a capture."""
        stream = side_stream(self._step.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream().wait_stream(stream)


@functools.cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream for eager steps before a capture, for the capture, and for making DDP, whose hooks stay on its stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
