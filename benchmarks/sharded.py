"""What the penalty of sharded weights costs the host: Python and torch's calls, with next to nothing to compute.

    python benchmarks/sharded.py [--ranks 1 2] [--device cuda] [--out FILE.json]

The weights are those of ViT-L with sides of 1/64 (on a GPU: as they are), cut by rows as FSDP2 does. On a CPU (gloo) it is
the CPU time of the main thread, without waiting for the other ranks; the least of many steps, since the machine may be
shared. On a GPU (NCCL) it is the time until the step returns, and until the device is done. The step of the base optimizer
alone is measured beside it. "calls" are those of torch that a step makes: on a GPU each is a launch or two.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

import bort
from bort._environment import describe
from bort._table import table
from bort.optim.sharded import routing

SEED, STEPS = 0, 60
SHAPES = [(1024, 768), *[(3072, 1024), (1024, 1024), (4096, 1024), (1024, 4096)] * 24]
ROUTES: dict[str, bool | None] = {"as estimated": None, "own": True, "reduce and gather": False}
WAYS = {"decoupled": (bort.BortA, torch.optim.AdamW), "coupled": (bort.BortS, torch.optim.SGD)}


class Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def step_of(cls: Any, device: str) -> Callable[[], Any]:
    mesh = dist.init_device_mesh(device, (dist.get_world_size(),))
    smaller = 1 if device == "cuda" else 64
    torch.manual_seed(SEED)
    params = []
    for m, n in SHAPES:
        whole = torch.randn(m // smaller, n // smaller, device=device) / max(m // smaller, n // smaller) ** 0.5
        p = nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)]))
        p.grad = torch.zeros_like(p)
        params.append(p)
    # torch 2.11 has no fused SGD for DTensors.
    fused = device == "cuda" and issubclass(cls, torch.optim.AdamW)
    step: Callable[[], Any] = cls(params, lr=1e-4, **({"fused": True} if fused else {"foreach": True})).step
    return step


def host_times(step: Callable[[], Any], device: str) -> dict[str, float]:
    """Microseconds until the step returns; on a GPU also until the device is done."""
    clock = time.perf_counter if device == "cuda" else time.thread_time
    returned, done = [], []
    for _ in range(STEPS):
        dist.barrier()
        if device == "cuda":
            torch.cuda.synchronize()
        start = clock()
        step()
        returned.append(clock() - start)
        if device == "cuda":
            torch.cuda.synchronize()
            done.append(clock() - start)
    if device == "cuda":
        return {"host_us": 1e6 * statistics.median(returned[3:]), "step_us": 1e6 * statistics.median(done[3:])}
    return {"host_us": 1e6 * min(returned[3:])}


def measured(step: Callable[[], Any], device: str) -> dict[str, float]:
    result = host_times(step, device)
    with Calls() as calls:
        step()
    return result | {"calls": calls.count}


def measure(out: Path, device: str) -> None:
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for way, (cls, base) in WAYS.items():
        results[f"{way}, {base.__name__} alone"] = measured(step_of(base, device), device)
        for route, own in ROUTES.items() if dist.get_world_size() > 1 else [("whole", None)]:
            with routing(own=own):
                results[f"{way}, {route}"] = measured(step_of(cls, device), device)
    if dist.get_rank() == 0:
        out.write_text(json.dumps(results))
    dist.barrier()  # a rank that leaves early can make gloo abort the others
    dist.destroy_process_group()


def launch(ranks: int, device: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), __file__]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        arguments = ["--worker", str(out), "--device", device]
        subprocess.run([sys.executable, *command, *arguments], check=True, env=environment)
        result: dict[str, Any] = json.loads(out.read_text())
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cuda = torch.cuda.is_available()
    parser.add_argument("--ranks", nargs="+", type=int, default=[1] if cuda else [1, 2])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if cuda else "cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        measure(arguments.worker, arguments.device)
        return
    results = {ranks: launch(ranks, arguments.device) for ranks in arguments.ranks}
    rows = [
        (str(ranks), name, *(f"{value:.0f}" for value in values.values()))
        for ranks, of_ranks in results.items()
        for name, values in of_ranks.items()
    ]
    columns = ["ranks", "step", "host, µs", *(["until done, µs"] if arguments.device == "cuda" else []), "calls"]
    print(table(columns, rows, right=(0, *range(2, len(columns)))))
    if arguments.out:
        command = f"python benchmarks/sharded.py --ranks {' '.join(map(str, arguments.ranks))}"
        whole = {"command": command, "weights": len(SHAPES), "results": results, **describe(SEED)}
        arguments.out.write_text(json.dumps(whole, indent=2) + "\n")


if __name__ == "__main__":
    main()
