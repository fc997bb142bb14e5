"""What the penalty adds to an optimizer step: ours, the published form, Muon, geotorch and the floor, in one process.

    python benchmarks/step.py [--nets resnet50 …] [--rounds 9] [--out FILE.json]

The variants are interleaved, the first round is thrown away, medians are compared; a round is several steps in a row, as a
training loop makes them, so that whatever is slower, host or device, is what counts. On a GPU BortA and BortS are also timed
without their CUDA graph ("kernel by kernel"), and the penalty alone by the time that its call takes the host. On a CPU:
smaller nets, fewer rounds.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peers import LR, PEERS, floor, published_form
from torch import Tensor, nn

import bort
from bort import nets, penalty
from bort._environment import describe
from bort._table import table

CONSTRAINT, SEED = 0.1, 0
SINGLE = "kernel by kernel"
NETS = {
    "ResNet-50": "resnet50",
    "DeiT-S": "deit_small_patch16_224",
    "Swin-S": "swin_small_patch4_window7_224",
    "ViT-L": "vit_large_patch16_224",
    "ACNN-Small": "acnn-small",
    "VGG16": "vgg16",
}


def create(name: str, device: str) -> nn.Module:
    torch.manual_seed(SEED)
    with torch.device(device):
        if name == "acnn-small":
            return nets.create("acnn-small", channels=3, image_size=32)
        import timm

        return timm.create_model(name)


def fresh(model: nn.Module) -> nn.Module:
    """A copy with gradients, so that all variants start alike and none disturbs another."""
    other = copy.deepcopy(model)
    for p in other.parameters():
        p.grad = torch.randn_like(p) * 1e-3
    return other


def groups(model: nn.Module) -> list[dict[str, Any]]:
    return bort.param_groups(model, constraint=CONSTRAINT, exclude=())


def launched_one_by_one(step: Callable[[], Any]) -> Callable[[], Any]:
    """A step that has not been made yet, to be made without a CUDA graph: it decides that in its first call."""
    os.environ["BORT_GRAPHS"] = "0"
    try:
        step()
    finally:
        del os.environ["BORT_GRAPHS"]
    return step


def variants(model: nn.Module) -> dict[str, Callable[[], Any]]:
    """One step each."""

    def optimizer_step(cls: Any, **settings: Any) -> Callable[[], Any]:
        step: Callable[[], Any] = cls(groups(fresh(model)), lr=LR, fused=True, **settings).step
        return step

    one = fresh(model)
    weights = [p.detach() for group in groups(one) if group["constraint"] for _, p in group["params"]]
    base = torch.optim.AdamW(groups(one), lr=LR, fused=True)

    def published() -> None:
        published_form(weights, LR * CONSTRAINT)
        base.step()

    steps: dict[str, Callable[[], Any]] = {
        "AdamW": optimizer_step(torch.optim.AdamW),
        "BortA": optimizer_step(bort.BortA),
        "published": published,
    }
    if torch.cuda.is_available():  # eight copies of a model and their states want memory
        steps["BortA every 4"] = optimizer_step(bort.BortA, every=4)
        steps["SGD"] = optimizer_step(torch.optim.SGD, momentum=0.9)
        steps["BortS"] = optimizer_step(bort.BortS, momentum=0.9)
        steps[f"BortA {SINGLE}"] = launched_one_by_one(optimizer_step(bort.BortA))
        steps[f"BortS {SINGLE}"] = launched_one_by_one(optimizer_step(bort.BortS, momentum=0.9))
    return steps


def host_time(model: nn.Module, rounds: int, repeats: int) -> dict[str, float]:
    """Median microseconds until the call of the penalty alone returns: the device is not waited for."""

    def penalty_step(decoupled: bool) -> Callable[[], Any]:
        step: Callable[[], Any] = bort.bortify(Still)(groups(fresh(model)), lr=LR, decoupled=decoupled).step
        return step

    steps: dict[str, Callable[[], Any]] = {"no penalty": Still(groups(fresh(model)), lr=LR).step}
    for name, decoupled in (("BortA", True), ("BortS", False)):
        steps[name] = penalty_step(decoupled)
        steps[f"{name} {SINGLE}"] = launched_one_by_one(penalty_step(decoupled))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds + 1):
        for name, step in steps.items():
            for _ in range(repeats):
                synchronize()  # nothing is queued: a full queue would make the host wait
                start = time.perf_counter()
                step()
                times[name].append(1e6 * (time.perf_counter() - start))
    return {name: statistics.median(values[repeats:]) for name, values in times.items()}


def ceilings(device: str) -> tuple[float, float]:
    """Bytes and floating point operations a second, measured: a large copy, a large product (half precision on a GPU)."""
    cuda = device == "cuda"
    a = torch.randn(2**28 if cuda else 2**24, device=device)
    b = torch.empty_like(a)
    copy = measure({"copy": lambda: b.copy_(a)}, 5, 3)["copy"]
    k = 8192 if cuda else 1024
    x = torch.randn(k, k, device=device, dtype=torch.float16 if cuda else torch.float32)
    product = measure({"mm": lambda: x @ x}, 5, 3)["mm"]
    return 2e3 * a.numel() * 4 / copy, 2e3 * k**3 / product


def measure(steps: dict[str, Callable[[], Any]], rounds: int, repeats: int) -> dict[str, float]:
    """Median milliseconds of a step over the rounds, all variants in turn, the first round not counted."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds + 1):
        for name, step in steps.items():
            synchronize()
            start = time.perf_counter()
            count = max(repeats, 4) if name.endswith("every 4") else repeats  # whole cycles
            for _ in range(count):
                step()
            synchronize()
            times[name].append(1e3 * (time.perf_counter() - start) / count)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def extra_memory(model: nn.Module, cls: Any, **settings: Any) -> dict[str, float]:
    """Memory beyond that of the base optimizer, in MiB: at the peak of a step, and what stays after it."""
    peaks, kept = [], []
    for optimizer_class in (cls.base, cls):
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        before = torch.cuda.memory_allocated()
        optimizer = optimizer_class(bort.param_groups(model, exclude=()), lr=LR, fused=True, **settings)
        for _ in range(3):
            torch.cuda.reset_peak_memory_stats()
            optimizer.step()
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated() - before)
        kept.append(torch.cuda.memory_allocated() - before)
        del optimizer
    return {"peak": (peaks[1] - peaks[0]) / 2**20, "kept": (kept[1] - kept[0]) / 2**20}


class Still(torch.optim.SGD):
    """Makes no step of its own, but keeps the gradients that it was given: those of the loss, here 0, and the penalty."""

    def step(self) -> None:  # type: ignore[override]
        self.gradients = [p.grad for group in self.param_groups for p in group["params"]]


def errors(weights: list[Tensor], off: float, **options: Any) -> dict[str, float]:
    """Relative error of the penalty, ``off`` per entry from the constraint, against float64: worst and median."""
    relative = []
    torch.manual_seed(SEED)
    for shape in dict.fromkeys(tuple(w.shape) for w in weights):
        w = torch.empty(shape[0], weights[0].new_empty(shape)[0].numel(), device=weights[0].device)
        nn.init.orthogonal_(w)
        w += off * torch.randn_like(w)
        p = nn.Parameter(w.reshape(shape))
        p.grad = torch.zeros_like(p)
        optimizer = bort.bortify(Still)([p], lr=1e-6, constraint=1.0, decoupled=False, **options)
        optimizer.step()
        exact = penalty.gradient(w.double())
        (direction,) = optimizer.gradients
        relative.append(((direction.double().reshape(exact.shape) - exact).norm() / exact.norm()).item())
    return {"worst": max(relative), "median": statistics.median(relative)}


def benchmark(label: str, device: str, rounds: int, peers: list[str], limits: tuple[float, float]) -> dict[str, Any]:
    model = create(NETS.get(label, label), device)
    weights = [p.detach() for g in bort.param_groups(model, exclude=()) if g["constraint"] for _, p in g["params"]]
    cuda = device == "cuda"
    result: dict[str, Any] = {
        "weights": len(weights),
        "parameters": sum(w.numel() for w in weights),
        "floor_ms": floor(weights, *limits),
        "step_ms": measure(variants(model), rounds, 12 if cuda else 1),
    }
    if peers:
        result["peers_ms"] = measure({name: PEERS[name](weights) for name in peers}, 1, 1)
    if cuda:
        result["host_us"] = host_time(model, rounds, 12)
        result["error_at_1e-3"] = errors(weights, 1e-3)
        memory = {
            "BortA": extra_memory(model, bort.BortA),
            "BortS": extra_memory(model, bort.BortS, momentum=0.9),
        }
        result["extra_memory_MiB"] = {
            **{name: sizes["peak"] for name, sizes in memory.items()},
            **{f"{name} kept": sizes["kept"] for name, sizes in memory.items()},
            "largest weight and its Gram": max(
                (4 * w.numel() + 4 * min(w.shape[0], w.numel() // w.shape[0]) ** 2) / 2**20 for w in weights
            ),
            "copy of the weights": sum(4 * w.numel() for w in weights) / 2**20,
        }
    return result


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def report(results: dict[str, dict[str, Any]]) -> str:
    header = (
        "network",
        "faster than published",
        "of the floor",
        "BortA/AdamW",
        "BortA adds ms",
        SINGLE,
        "every 4",
        "BortS adds",
        SINGLE,
        "host µs A",
        "host µs S",
        "published",
        "floor",
        "AdamW",
        *PEERS,
    )
    rows = []
    for net, result in results.items():
        ms, host, peers = result["step_ms"], result.get("host_us", {}), result.get("peers_ms", {})
        ours, published = ms["BortA"] - ms["AdamW"], ms["published"] - ms["AdamW"]
        rows.append(
            (
                net,
                f"{published / ours:.1f}×",
                f"{ours / result['floor_ms']:.1f}×",
                f"{ms['BortA'] / ms['AdamW']:.2f}×",
                f"{ours:.2f}",
                _difference(ms, f"BortA {SINGLE}", "AdamW"),
                _difference(ms, "BortA every 4", "AdamW"),
                _difference(ms, "BortS", "SGD"),
                _difference(ms, f"BortS {SINGLE}", "SGD"),
                _difference(host, "BortA", "no penalty", digits=0),
                _difference(host, "BortS", "no penalty", digits=0),
                f"{published:.2f}",
                f"{result['floor_ms']:.2f}",
                f"{ms['AdamW']:.2f}",
                *(f"{peers[name]:.1f}" if name in peers else "–" for name in PEERS),
            )
        )
    return table(header, rows, right=range(1, len(header)))


def _difference(times: dict[str, float], name: str, base: str, digits: int = 2) -> str:
    return f"{times[name] - times[base]:.{digits}f}" if name in times else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cuda = torch.cuda.is_available()
    parser.add_argument("--nets", nargs="+", default=list(NETS) if cuda else ["ResNet-50", "DeiT-S"])
    parser.add_argument("--rounds", type=int, default=9 if cuda else 3)
    parser.add_argument("--peers", nargs="+", default=[], choices=list(PEERS), help="these as well (slow)")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if cuda else "cpu"
    limits = ceilings(device)
    options = f"--rounds {arguments.rounds}" + (f" --peers {' '.join(arguments.peers)}" if arguments.peers else "")
    whole: dict[str, Any] = {
        "command": f"python benchmarks/step.py --nets {' '.join(arguments.nets)} {options}",
        "ceilings": {"bytes_per_s": limits[0], "flops_per_s": limits[1]},
        "results": {},
        **describe(SEED),
    }
    for net in arguments.nets:
        print(f"{net} on {device} …", flush=True)
        whole["results"][net] = benchmark(net, device, arguments.rounds, arguments.peers, limits)
        if arguments.out:  # after each: the next one may be too much for the machine
            arguments.out.write_text(json.dumps(whole, indent=2) + "\n")
    print(report(whole["results"]))


if __name__ == "__main__":
    main()
