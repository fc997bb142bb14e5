"""What the penalty costs on many ranks: a small model, checked against 1, 2 and 4 processes, then drawn for many GPUs.

    python benchmarks/scaling.py --out FILE.json [--picture FILE.svg]

First 1, 2 and 4 processes of this machine (gloo, one thread each) measure their own FLOP rate, bandwidth and latency, all at
once as in a step, then the penalty of a few weights in every layout; the model (`bort.optim.sharded._cost`) predicts it from
the three numbers. Then the model is asked about clusters: see CLUSTER and NETWORKS for what is assumed.
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
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor

import bort
from bort._environment import describe
from bort._table import table
from bort.optim.sharded import _cost, routing
from bort.optim.sharded._cost import Estimate, Machine, Matrix

SEED, RANKS = 0, (1, 2, 4)
# Two blocks of a small transformer: square, tall and wide weights.
SHAPES = [(1152, 384), (384, 384), (1536, 384), (384, 1536)] * 2
LAYOUTS = ("DDP", "DDP, shared", "FSDP2, reduce and gather", "FSDP2, own")

# One GPU of a cluster of eight-GPU machines. The rate is what the kernels reach with ViT-L on an H200, for two whole products
# (benchmarks/results/step-h200.json); what a rank gets out of a collective inside a machine and between machines is assumed.
CLUSTER = {"inside a machine": Machine(4.3e14, 2e11, 3e-5), "between machines": Machine(4.3e14, 4e10, 6e-5)}
# Forward and backward FLOPs of one GPU's batch, at 4·10¹⁴ a second (40% of what an H100 or H200 can do in bfloat16).
STEP_FLOPS = 4e14
NETWORKS: dict[str, dict[str, Any]] = {
    "ResNet-50": {"batch": "256 images", "flops": 3 * 2 * 4.1e9 * 256},
    "ViT-L": {"batch": "64 images", "flops": 3 * 2 * 61.6e9 * 64},
    "7B transformer": {"batch": "8192 tokens", "flops": 6 * 6.7e9 * 8192},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        measure(arguments.worker)
        return
    measured = [launch(ranks) for ranks in RANKS]
    print(report(measured))
    predicted = {name: {ranks: predict(name, ranks) for ranks in _powers(8, 1024)} for name in NETWORKS}
    print(outlook(predicted))
    whole = {
        "command": "python benchmarks/scaling.py",
        "measured": measured,
        "assumed": {
            "cluster": {key: asdict(machine) for key, machine in CLUSTER.items()},
            "networks": NETWORKS,
            "step_flops_per_s": STEP_FLOPS,
        },
        "predicted": predicted,
        **describe(SEED),
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(whole, indent=2) + "\n")
    if arguments.picture:
        draw(predicted, arguments.picture)


# The measured side


def launch(ranks: int) -> dict[str, Any]:
    print(f"{ranks} process{'es' if ranks > 1 else ''} …", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), __file__]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, *command, "--worker", str(out)], check=True, env=environment)
        result: dict[str, Any] = json.loads(out.read_text())
    return result


def measure(out: Path) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(SEED)
    ranks = dist.get_world_size()
    machine = calibrate()
    result: dict[str, Any] = {"ranks": ranks, "machine": asdict(machine), "layouts": {}}
    for layout in LAYOUTS if ranks > 1 else LAYOUTS[:1]:
        result["layouts"][layout] = {
            "measured_ms": 1e3 * penalty_seconds(layout),
            "predicted_ms": 1e3 * model(layout, SHAPES, ranks).seconds(machine),
        } | asdict(model(layout, SHAPES, ranks))
    if dist.get_rank() == 0:
        out.write_text(json.dumps(result))
    dist.barrier()  # a rank that leaves early can make gloo abort the others
    dist.destroy_process_group()


def calibrate() -> Machine:
    """This machine's three numbers, with all processes at it together."""
    k = 384
    a, b = torch.randn(k, k), torch.randn(k, 4 * k)
    flops = 2 * k * k * 4 * k / seconds(lambda: a @ b)
    ranks = dist.get_world_size()
    if ranks == 1:
        return Machine(flops, float("inf"), 0.0)
    small, large = torch.zeros(1), torch.zeros(2**20)
    latency = seconds(lambda: dist.all_reduce(small))
    moved = 2 * large.numel() * 4 * (1 - 1 / ranks)
    return Machine(flops, moved / max(1e-9, seconds(lambda: dist.all_reduce(large)) - latency), latency)


def seconds(function: Callable[[], Any], rounds: int = 15) -> float:
    """Median over rounds of the slowest rank's time."""
    times = []
    for _ in range(rounds + 2):
        dist.barrier()
        start = time.perf_counter()
        function()
        slowest = torch.tensor(time.perf_counter() - start)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        times.append(slowest.item())
    return statistics.median(times[2:])


class Still(torch.optim.SGD):
    """Makes no step of its own: a step is the penalty alone."""

    def step(self) -> None:  # type: ignore[override]
        pass


def penalty_seconds(layout: str) -> float:
    weights = [torch.randn(shape) / 40 for shape in SHAPES]
    if layout.startswith("FSDP2"):
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        weights = [distribute_tensor(w, mesh, [Shard(0)]) for w in weights]
    params = [nn.Parameter(w) for w in weights]
    for p in params:
        p.grad = torch.zeros_like(p)
    optimizer = bort.bortify(Still)(params, lr=1e-4, decoupled=True, shard=layout == "DDP, shared")
    # Fixed, to see what each costs, whatever an estimate or a trial would choose.
    with routing(own=layout.endswith("own"), share=True):
        return seconds(optimizer.step)


# The predicted side


def model(layout: str, shapes: list[tuple[int, int]], ranks: int) -> Estimate:
    matrices = [Matrix(m, n, ranks, cut_along_long_side=m >= n) for m, n in shapes]
    flops = [matrix.flops for matrix in matrices]
    if layout == "DDP" or ranks == 1:
        return Estimate(0.0, 0, sum(flops))
    if layout == "DDP, shared":
        size = sum(matrix.size for matrix in matrices) * (1 - 1 / ranks)
        return Estimate(size, 1, _cost.assign(flops, ranks)[1])
    return _cost.estimate(matrices, [layout.endswith("own")] * len(matrices))


def shapes_of(network: str) -> list[tuple[int, int]]:
    if network == "7B transformer":
        return ([(4096, 4096)] * 4 + [(11008, 4096)] * 2 + [(4096, 11008)]) * 32
    import timm

    with torch.device("meta"):
        net = timm.create_model({"ResNet-50": "resnet50", "ViT-L": "vit_large_patch16_224"}[network])
    groups = bort.param_groups(net)
    return [(p.shape[0], p[0].numel()) for group in groups if group["constraint"] for _, p in group["params"]]


def predict(network: str, ranks: int) -> dict[str, float]:
    """Per cent of a step that the penalty takes, by layout; FSDP2 by the routes that it would choose itself."""
    shapes = shapes_of(network)
    machine = CLUSTER["inside a machine" if ranks <= 8 else "between machines"]
    step = NETWORKS[network]["flops"] / STEP_FLOPS
    matrices = [Matrix(m, n, ranks, cut_along_long_side=m >= n) for m, n in shapes]
    sharded = _cost.estimate(matrices, _cost.choose(matrices, machine))
    costs = {
        "DDP": model("DDP", shapes, ranks),
        "DDP, shared": model("DDP, shared", shapes, ranks),
        "FSDP2": sharded,
    }
    inside = [Matrix(m, n, 8, cut_along_long_side=m >= n) for m, n in shapes]
    fast = CLUSTER["inside a machine"]
    percent = {name: 100 * estimate.seconds(machine) / step for name, estimate in costs.items()}
    hybrid = _cost.estimate(inside, _cost.choose(inside, fast))
    return percent | {"HSDP, shards of 8": 100 * hybrid.seconds(fast) / step}


def _powers(first: int, last: int) -> list[int]:
    return [first * 2**i for i in range((last // first).bit_length())]


# What is shown


def report(measured: list[dict[str, Any]]) -> str:
    rows = []
    for run in measured:
        for layout, costs in run["layouts"].items():
            ratio = f"{costs['predicted_ms'] / costs['measured_ms']:.2f}"
            numbers = (f"{costs['size'] / 2**20:.1f}", str(costs["calls"]), f"{costs['flops'] / 1e9:.2f}")
            times = (f"{costs['measured_ms']:.1f}", f"{costs['predicted_ms']:.1f}", ratio)
            rows.append((str(run["ranks"]), layout, *numbers, *times))
    header = (
        "ranks",
        "layout",
        "MiB a rank",
        "calls",
        "GFLOP a rank",
        "measured ms",
        "predicted ms",
        "predicted/measured",
    )
    return table(header, rows, right=(0, 2, 3, 4, 5, 6, 7))


def outlook(predicted: dict[str, dict[int, dict[str, float]]]) -> str:
    rows = [
        (name, layout, *(f"{by_ranks[ranks][layout]:.2f}" for ranks in by_ranks))
        for name, by_ranks in predicted.items()
        for layout in by_ranks[8]
    ]
    header = ("% of a step", "GPUs:", *map(str, predicted["ViT-L"]))
    return table(header, rows, right=range(2, len(header)))


def draw(predicted: dict[str, dict[int, dict[str, float]]], file: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "bort"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(predicted), figsize=(11, 3.6), sharey=True, constrained_layout=True)
    for axis, (name, by_ranks) in zip(axes, predicted.items(), strict=True):
        for layout, style in zip(by_ranks[8], ("o-", "s-", "^-", "D--"), strict=True):
            axis.plot(list(by_ranks), [values[layout] for values in by_ranks.values()], style, ms=4, label=layout)
        axis.axhline(2, color="gray", lw=1, ls=":")
        axis.set(xscale="log", yscale="log", title=f"{name}, {NETWORKS[name]['batch']} a GPU", xlabel="GPUs")
        axis.set_xticks(list(by_ranks), [str(ranks) for ranks in by_ranks], fontsize=7)
        axis.set_yticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1", "2", "5", "10", "20", "50"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("penalty, % of a step (model)")
    axes[0].annotate("2%", (8, 2.1), fontsize=8, color="gray")
    axes[-1].legend(fontsize=8)
    figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main()
