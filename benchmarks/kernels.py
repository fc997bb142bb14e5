"""Where the time of the penalty goes on a GPU: kernel by kernel, by torch's profiler, with the rate of the two products.

python benchmarks/kernels.py [--nets ResNet-50 …] [--steps 20] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from step import LR, NETS, SEED, create
from torch.profiler import ProfilerActivity, profile

import bort
from bort._environment import describe
from bort._table import table

KERNELS = ("stage", "gram", "judge", "apply")  # a large weight has its own gram and apply


def kernel_times(net: str, cls: Any, steps: int, **options: Any) -> dict[str, float]:
    """Milliseconds of device time a step in each kernel of the penalty, and in all the rest."""
    model = create(NETS.get(net, net), "cuda")
    for p in model.parameters():
        p.grad = torch.randn_like(p) * 1e-3
    optimizer = cls(bort.param_groups(model, exclude=()), lr=LR, fused=True, **options)
    for _ in range(3):
        optimizer.step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            optimizer.step()
        torch.cuda.synchronize()
    times = dict.fromkeys((*KERNELS, "other"), 0.0)
    for event in profiler.key_averages():
        name = event.key.removesuffix("_large")
        name = name if name in KERNELS else "other"
        times[name] += event.self_device_time_total / 1e3 / steps
    return times


def products(net: str) -> float:
    """Floating point operations of one full product over all weights of a network."""
    model = create(NETS.get(net, net), "meta")
    total = 0.0
    for group in bort.param_groups(model, exclude=()):
        for _, p in group["params"] if group["constraint"] else []:
            m, n = p.shape[0], p.numel() // p.shape[0]
            total += 2 * min(m, n) ** 2 * max(m, n)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", default=list(NETS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("There is no CUDA device here, and no kernels to time.")
    results: dict[str, Any] = {}
    rows = []
    for net in arguments.nets:
        for cls, options in ((bort.BortA, {}), (bort.BortS, {"momentum": 0.9})):
            times = kernel_times(net, cls, arguments.steps, **options)
            flops = products(net)
            rates = {"gram": flops / 2 / times["gram"] / 1e9, "apply": flops / times["apply"] / 1e9}
            results[f"{net} {cls.__name__}"] = {"ms": times, "TFLOP/s": rates}
            rows.append(
                (
                    net,
                    cls.__name__,
                    *(f"{times[name]:.3f}" for name in times),
                    *(f"{rate:.0f}" for rate in rates.values()),
                )
            )
    print(table(("network", "optimizer", *KERNELS, "other", "Gram TFLOP/s", "apply TFLOP/s"), rows, right=range(2, 9)))
    if arguments.out:
        whole = {"command": "python benchmarks/kernels.py", "results": results, **describe(SEED)}
        arguments.out.write_text(json.dumps(whole, indent=2) + "\n")


if __name__ == "__main__":
    main()
