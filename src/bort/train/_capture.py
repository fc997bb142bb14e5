"""Steps in CUDA graphs: one launch instead of hundreds or thousands, so that no network waits for Python.

Everything that a step does is in the graph: gathering, augmenting and normalising the images, forward, backward, the update.
What changes from step to step is in device memory: which images (`Batch.inputs`), the learning rate (a tensor), the counts of
the optimizer, and the state of the random generator that drop path and dropout draw from.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

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

    def __init__(self, step: Step, world: World) -> None:
        self._step = step
        self._warm_up = _WARM_UP if world.size == 1 else _DDP_WARM_UP
        self._eager_steps: dict[Hashable, int] = {}
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, dict[str, Tensor]]] = {}

    def __call__(self, batch: Batch) -> None:
        key = batch.count, batch.weight
        if key not in self._graphs:
            eager_steps = self._eager_steps.get(key, 0)
            if eager_steps < (1 if self._graphs else self._warm_up) or len(self._graphs) == _MOST_GRAPHS:
                self._eager_steps[key] = eager_steps + 1
                self._run_on_side_stream(batch)
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
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=side_stream(self._step.device)):
            self._step(replace(batch, inputs=inputs))
        return graph, inputs

    def _run_on_side_stream(self, batch: Batch) -> None:
        """Run a step eagerly. Not on the default stream: torch requires another one for steps before a capture."""
        stream = side_stream(self._step.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step(batch)
        torch.cuda.current_stream().wait_stream(stream)


@functools.cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream for eager steps before a capture, for the capture, and for making DDP, whose hooks stay on its stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
