"""What each option of the penalty costs, in one process: the time of a step of penalty alone, as a multiple of the default's.

    python benchmarks/options.py [--nets ResNet-50 …] [--rounds 5] [--out FILE.json]

The base optimizer makes no step, so the penalty is all there is. Variants take turns, and each is compared with the default
of the same round; medians of the rounds, the first not counted. On a GPU each also has the time that its call takes the host,
and one variant launches its kernels one by one. On a CPU it is the time that this process computes, not what passes on the
clock: others may use the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from step import LR, NETS, SEED, SINGLE, Still, create, errors, fresh, groups, launched_one_by_one

import bort
from bort._environment import describe
from bort._table import table

# Grouped and depthwise convolutions are constrained block by block, and most blocks have few rows.
GROUPED = {"ResNeXt-50": "resnext50_32x4d", "MobileNetV3": "mobilenetv3_large_100", "ConvNeXt-T": "convnext_tiny"}
SMALLER = {"ResNet-18": "resnet18", "MobileNetV3": "mobilenetv3_large_100"}

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "coupled": {"decoupled": False},
    "every=4": {"every": 4},
    "warmup=100": {"warmup": 100},
    'precision="highest"': {"precision": "highest"},
    'precision="medium"': {"precision": "medium"},
    "scale=2": {"scale": 2.0},
    'scale="adaptive"': {"scale": "adaptive"},
    'scale="initial"': {"scale": "initial"},
    'mode="rows"': {"mode": "rows"},
    'mode="columns"': {"mode": "columns"},
    'mode="l1-full"': {"mode": "l1-full"},
    'mode="l1-rows"': {"mode": "l1-rows"},
    'mode="l1-columns"': {"mode": "l1-columns"},
}


def penalty_step(model: torch.nn.Module, options: dict[str, Any]) -> Callable[[], Any]:
    settings = {"lr": LR, "decoupled": True} | options
    step: Callable[[], Any] = bort.bortify(Still)(groups(fresh(model)), **settings).step
    return step


def milliseconds(step: Callable[[], Any], count: int) -> tuple[float, float]:
    """Of a step, on a GPU until the device is done, and until the call returns."""
    cuda = torch.cuda.is_available()
    clock = time.perf_counter if cuda else time.process_time
    if cuda:
        torch.cuda.synchronize()
    start = clock()
    for _ in range(count):
        step()
    returned = clock()
    if cuda:
        torch.cuda.synchronize()
    return 1e3 * (clock() - start) / count, 1e3 * (returned - start) / count


def compare(model: torch.nn.Module, rounds: int) -> dict[str, dict[str, float]]:
    with warnings.catch_warnings():  # of what an option does to a network is not the question here
        warnings.simplefilter("ignore")
        steps = {name: penalty_step(model, options) for name, options in OPTIONS.items()}
        if torch.cuda.is_available():
            steps[f"default, {SINGLE}"] = launched_one_by_one(penalty_step(model, {}))
        # Whole cycles of every=4.
        counts = {name: 12 if torch.cuda.is_available() else OPTIONS[name].get("every", 1) for name in steps}
        times = [{name: milliseconds(step, counts[name]) for name, step in steps.items()} for _ in range(rounds + 1)][
            1:
        ]
    results = {}
    for name in steps:
        results[name] = {
            "ms": statistics.median(round_[name][0] for round_ in times),
            "of_default": statistics.median(round_[name][0] / round_["default"][0] for round_ in times),
        }
        if torch.cuda.is_available():
            results[name]["host_us"] = 1e3 * statistics.median(round_[name][1] for round_ in times)
    return results


def errors_of(model: torch.nn.Module) -> dict[str, dict[str, float]]:
    """Of each precision, 1e-3 per entry off the constraint."""
    weights = [p.detach() for group in groups(model) if group["constraint"] for _, p in group["params"]]
    return {precision: errors(weights, 1e-3, precision=precision) for precision in ("highest", "high", "medium")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cuda = torch.cuda.is_available()
    parser.add_argument("--nets", nargs="+", default=["ResNet-50", *GROUPED] if cuda else list(SMALLER))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if cuda else "cpu"
    whole: dict[str, Any] = {
        "command": f"python benchmarks/options.py --nets {' '.join(arguments.nets)} --rounds {arguments.rounds}",
        "threads": torch.get_num_threads(),
        "results": {},
        **describe(SEED),
    }
    names = NETS | GROUPED | SMALLER
    for net in arguments.nets:
        print(f"{net} on {device} …", flush=True)
        model = create(names.get(net, net), device)
        results = compare(model, arguments.rounds)
        whole["results"][net] = {"options": results}
        if net in ("ResNet-50", "ResNet-18"):  # blocks have other shapes than their weights
            whole["results"][net]["error_at_1e-3"] = errors_of(model)
        rows = [
            (name, f"{r['ms']:.2f}", f"{r['of_default']:.2f}", f"{r['host_us']:.0f}" if "host_us" in r else "–")
            for name, r in results.items()
        ]
        print(table((net, "ms", "of the default", "host µs"), rows, right=(1, 2, 3)))
        if arguments.out:  # after each: the next one may be too much for the machine
            arguments.out.write_text(json.dumps(whole, indent=2) + "\n")


if __name__ == "__main__":
    main()
