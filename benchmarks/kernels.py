"""Where the time of the penalty goes on a GPU: kernel by kernel, by torch's profiler, with the rate of the two products.

    python benchmarks/kernels.py [--nets ResNet-50 …] [--steps 20] [--block-batches 512] [--scratch 24 48] [--out FILE.json]

Also how many kernels the penalty has in a step, and how long the host takes to launch its CUDA graph. With --block-batches
each network is measured a second time, with weights of one shape, from that short side on, in batches for the kernels of
large weights (`bort.optim.kernels.Tuning.block_batches`). With --scratch it is also measured with so many MiB of scratch:
less of it makes more rounds, whose staged weights may stay in the cache.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from step import LR, NETS, SEED, create
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import bort
from bort._environment import describe
from bort._table import table
from bort.optim import _group_penalty
from bort.optim.kernels import Kernels, Tuning

KERNELS = ("stage", "gram", "judge", "apply")  # a large weight has its own gram and apply


def kernel_times(net: str, cls: Any, steps: int, **options: Any) -> dict[str, float]:
    """Of a step: milliseconds of device time in each kernel of the penalty and in all the rest, the number of the penalty's
    kernels, and microseconds of the host to launch its graph."""
    model = create(NETS.get(net, net), "cuda")
    for p in model.parameters():
        p.grad = torch.randn_like(p) * 1e-3
    optimizer = cls(bort.param_groups(model, exclude=()), lr=LR, fused=True, **options)
    for _ in range(3):
        optimizer.step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(steps):
            optimizer.step()
        torch.cuda.synchronize()
    times = dict.fromkeys((*KERNELS, "other"), 0.0)
    launches, graph = 0.0, 0.0
    for event in profiler.key_averages():
        name = event.key.removesuffix("_large")
        launches += event.count / steps if name in KERNELS else 0
        if event.device_type == DeviceType.CUDA:  # torch counts a kernel's time for its caller on the host, too
            times[name if name in KERNELS else "other"] += event.self_device_time_total / 1e3 / steps
        if event.key == "cudaGraphLaunch":
            graph += event.self_cpu_time_total / steps
    return times | {"kernels": launches, "graph launch, µs": graph}


def products(net: str) -> float:
    """Floating point operations of one full product over all weights of a network."""
    model = create(NETS.get(net, net), "meta")
    total = 0.0
    for group in bort.param_groups(model, exclude=()):
        for _, p in group["params"] if group["constraint"] else []:
            m, n = p.shape[0], p.numel() // p.shape[0]
            total += 2 * min(m, n) ** 2 * max(m, n)
    return total


def tunings(block_batches: int | None, scratch: list[int]) -> dict[str, Tuning]:
    """By the name that their results get."""
    batched = {} if block_batches is None else {", block batches": Tuning(block_batches=block_batches)}
    return {"": Tuning()} | batched | {f", {size} MiB": Tuning(scratch_bytes=size * 2**20) for size in scratch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", default=list(NETS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--block-batches", type=int, metavar="SIDE")
    parser.add_argument("--scratch", type=int, nargs="+", default=[], metavar="MIB")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("There is no CUDA device here, and no kernels to time.")
    results: dict[str, Any] = {}
    rows = []
    for net in arguments.nets:
        flops = products(net)
        for name, tuning in tunings(arguments.block_batches, arguments.scratch).items():
            _group_penalty.Kernels = partial(Kernels, tuning=tuning)  # type: ignore[assignment, misc]
            for cls, options in ((bort.BortA, {}), (bort.BortS, {"momentum": 0.9})):
                times = kernel_times(net, cls, arguments.steps, **options)
                work = {"gram": flops / 2, "apply": flops}
                rates = {k: work[k] / times[k] / 1e9 if times[k] else float("nan") for k in work}
                results[f"{net} {cls.__name__}{name}"] = {"ms": times, "TFLOP/s": rates}
                shown = [f"{times[kernel]:.3f}" for kernel in (*KERNELS, "other")]
                shown += [f"{times['kernels']:.0f}", f"{times['graph launch, µs']:.0f}"]
                rows.append((net, cls.__name__ + name, *shown, *(f"{rate:.0f}" for rate in rates.values())))
    header = (*KERNELS, "other", "kernels", "graph launch, µs", "Gram TFLOP/s", "apply TFLOP/s")
    print(table(("network", "optimizer", *header), rows, right=range(2, 11)))
    if arguments.out:
        options = "" if arguments.block_batches is None else f" --block-batches {arguments.block_batches}"
        options += f" --scratch {' '.join(map(str, arguments.scratch))}" if arguments.scratch else ""
        command = f"python benchmarks/kernels.py --nets {' '.join(arguments.nets)}{options}"
        arguments.out.write_text(
            json.dumps({"command": command, "results": results, **describe(SEED)}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
