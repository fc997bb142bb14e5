"""What a measurement of bort.monitor takes, beside a training step of the same network, in one process.

    python benchmarks/monitor.py [--batch 8] [--rounds 5] [--out FILE.json]

A training step is forward, backward and a step of BortA on random images; steps and measurements take turns, the first round
is thrown away, medians are compared. The share is that of one measurement in the time of 100 steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bort
from bort import monitor
from bort._environment import describe
from bort._table import table

SEED, EVERY = 0, 100
NETS = {"ResNet-50": ("resnet50", ("fc.*",)), "DeiT-S": ("deit_small_patch16_224", ("head.*",))}


def milliseconds(work: Callable[[], Any]) -> float:
    _synchronize()
    start = time.perf_counter()
    work()
    _synchronize()
    return 1e3 * (time.perf_counter() - start)


def benchmark(name: str, exclude: tuple[str, ...], batch: int, rounds: int, device: str) -> dict[str, Any]:
    import timm

    torch.manual_seed(SEED)
    with torch.device(device):
        model = timm.create_model(name).train()
        images, labels = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))
    optimizer = bort.BortA(bort.param_groups(model, exclude=exclude), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    def all_layers() -> None:
        monitor.measure(optimizer, layers=True)

    works = {"step": step, "measure": all_layers, "residuals": optimizer.residuals}
    times = [{key: milliseconds(work) for key, work in works.items()} for _ in range(rounds + 1)][1:]
    medians = {key: statistics.median(each[key] for each in times) for key in works}
    share = medians["measure"] / (EVERY * medians["step"] + medians["measure"])
    return {"weights": len(optimizer.constrained()), "batch": batch, "milliseconds": medians, "share": share}


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256 if cuda else 8, help="images in a step")
    parser.add_argument("--rounds", type=int, default=20 if cuda else 5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = {
        label: benchmark(name, exclude, arguments.batch, arguments.rounds, "cuda" if cuda else "cpu")
        for label, (name, exclude) in NETS.items()
    }
    rows = [
        (
            label,
            str(result["weights"]),
            *(f"{result['milliseconds'][key]:.1f}" for key in ("step", "measure", "residuals")),
            f"{100 * result['share']:.2f}%",
        )
        for label, result in results.items()
    ]
    header = ("network", "weights", "step, ms", "measure, ms", "residuals(), ms", f"share, every {EVERY}")
    print(table(header, rows, right=range(1, len(header))))
    if arguments.out:
        command = f"python benchmarks/monitor.py --batch {arguments.batch} --rounds {arguments.rounds}"
        whole = {"command": command, **describe(SEED), "results": results}
        arguments.out.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
