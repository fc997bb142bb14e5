"""How long an optimizer step takes with and without the penalty, side by side in one process.

    python benchmarks/step.py [--nets resnet50 deit_small_patch16_224 …] [--repeats 7] [--out FILE.json]

Base step, Bort step and the published form (the paper's equation weight by weight, written afresh) are interleaved, the
first round is thrown away and medians are compared: ratios mean more than milliseconds on a shared machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import timm
import torch
from torch import nn

from bort import BortA
from bort._table import table


def published(weights: list[torch.Tensor], rate: float) -> None:
    """p ← p − α·λ(WWᵀW − W), equ:bort as it stands."""
    for p in weights:
        w = p.reshape(p.shape[0], -1)
        p.sub_((w @ w.T @ w - w).reshape(p.shape), alpha=rate)


def measure(name: str, device: str, repeats: int) -> dict[str, float]:
    """Milliseconds a step: AdamW, AdamW with the published form before it, BortA."""
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(name).to(device)
    for p in model.parameters():
        p.grad = torch.randn_like(p) * 1e-3
    weights = [p.detach() for p in model.parameters() if p.ndim >= 2]
    base = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    bort = BortA(model.parameters(), lr=1e-4, fused=True)

    def published_step() -> None:
        published(weights, 1e-5)
        base.step()

    steps = {"AdamW": base.step, "published": published_step, "BortA": bort.step}
    times: dict[str, list[float]] = {key: [] for key in steps}
    for _ in range(repeats + 1):
        for key, step in steps.items():
            start = time.perf_counter()
            step()
            if device == "cuda":
                torch.cuda.synchronize()
            times[key].append(1e3 * (time.perf_counter() - start))
    return {key: statistics.median(values[1:]) for key, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", default=["resnet50", "deit_small_patch16_224"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    results: dict[str, dict[str, float]] = {}
    for net in arguments.nets:
        print(f"{net} on {device} …", flush=True)
        results[net] = measure(net, device, arguments.repeats)
    rows = [
        (
            net,
            f"{(ms['published'] - ms['AdamW']) / (ms['BortA'] - ms['AdamW']):.2f}×",
            *(f"{ms[key]:.1f}" for key in ("AdamW", "published", "BortA")),
        )
        for net, ms in results.items()
    ]
    header = ("network", "penalty faster than published", "AdamW ms", "+ published ms", "BortA ms")
    print(table(header, rows, right=(1, 2, 3, 4)))
    if arguments.out:
        hardware = (
            torch.cuda.get_device_name()
            if device == "cuda"
            else f"{platform.processor()}, {torch.get_num_threads()} threads"
        )
        report = {"milliseconds": results, "hardware": hardware, "torch": torch.__version__, "timm": timm.__version__}
        arguments.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
