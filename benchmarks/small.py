"""Many small weights: what a step takes for each of them, with SGD and with Bort-S, in one process.

    python benchmarks/small.py [--out FILE.json]

Each shape has as many weights as make about the same number of elements; variants are interleaved, medians are compared. On a
CPU it is the time that this process computes, on a GPU the time until the device is done.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch import nn

from bort import BortS
from bort._environment import describe
from bort._table import table

SHAPES = {(4, 4): 2000, (3, 50): 1000, (16, 16): 1000, (64, 64): 200, (128, 128): 60, (256, 256): 16}
ROUNDS = 7


def microseconds(optimizer: torch.optim.Optimizer, count: int) -> float:
    cuda = torch.cuda.is_available()
    clock = time.perf_counter if cuda else time.process_time
    if cuda:
        torch.cuda.synchronize()
    start = clock()
    optimizer.step()
    if cuda:
        torch.cuda.synchronize()
    return 1e6 * (clock() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    out: Path | None = parser.parse_args().out
    device, results = "cuda" if torch.cuda.is_available() else "cpu", []
    for shape, count in SHAPES.items():
        torch.manual_seed(0)
        start = [torch.randn(shape, device=device) / max(shape) ** 0.5 for _ in range(count)]
        optimizers = {}
        for name, cls in (("SGD", torch.optim.SGD), ("Bort-S", BortS)):
            weights = [nn.Parameter(w.clone()) for w in start]
            for p in weights:
                p.grad = torch.zeros_like(p)
            optimizers[name] = cls(weights, lr=1e-3)
        # Not counted: on a GPU the first step compiles, and the second is recorded.
        rounds = [{name: microseconds(o, count) for name, o in optimizers.items()} for _ in range(2 + ROUNDS)][2:]
        medians = {name: statistics.median(r[name] for r in rounds) for name in optimizers}
        results.append({"shape": shape, "weights": count, "microseconds": medians})
    rows = [
        (" × ".join(map(str, r["shape"])), str(r["weights"]), *(f"{t:.1f}" for t in r["microseconds"].values()))
        for r in results
    ]
    print(table(("weight", "how many", "SGD, µs each", "Bort-S, µs each"), rows, right=(1, 2, 3)))
    if out:
        out.write_text(json.dumps(describe(0) | {"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
