"""What the penalty adds to an optimizer step: ours, the published form, Muon, geotorch and the floor, in one process.

    python benchmarks/step.py [--nets resnet50 …] [--rounds 9] [--out FILE.json]

The variants are interleaved, the first round is thrown away, medians are compared; a round is several steps in a row, as a
training loop makes them, so that whatever is slower, host or device, is what counts. On a CPU: smaller nets, fewer rounds.
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
from torch import Tensor, nn

import bort
from bort import nets, penalty
from bort._environment import describe
from bort._table import table

LR, CONSTRAINT, SEED = 1e-4, 0.1, 0
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


def published_form(weights: list[Tensor], rate: float) -> None:
    """p ← p − α·λ(WWᵀW − W): equ:bort weight by weight, as it stands, in TF32 where there is TF32."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    for p in weights:
        w = p.reshape(p.shape[0], -1)
        p.sub_((w @ w.T @ w - w).reshape(p.shape), alpha=rate)
    torch.backends.cuda.matmul.fp32_precision = before


def variants(model: nn.Module) -> dict[str, Callable[[], Any]]:
    """One step each, on weights of their own (a copy for each, so that all start alike and none disturbs another)."""
    import copy

    def fresh() -> nn.Module:
        other = copy.deepcopy(model)
        for p in other.parameters():
            p.grad = torch.randn_like(p) * 1e-3
        return other

    def groups(of: nn.Module, **settings: Any) -> list[dict[str, Any]]:
        return [group | settings for group in bort.param_groups(of, constraint=CONSTRAINT, exclude=())]

    def bort_step(cls: Any, **settings: Any) -> Callable[[], Any]:
        return cls(groups(fresh()), lr=LR, fused=True, **settings).step

    one = fresh()
    weights = [p.detach() for group in groups(one) if group["constraint"] for _, p in group["params"]]
    base = torch.optim.AdamW(groups(one), lr=LR, fused=True)

    def published() -> None:
        published_form(weights, LR * CONSTRAINT)
        base.step()

    steps: dict[str, Callable[[], Any]] = {
        "AdamW": torch.optim.AdamW(groups(fresh()), lr=LR, fused=True).step,
        "BortA": bort_step(bort.BortA),
        "published": published,
    }
    if torch.cuda.is_available():  # six copies of a model and their states want memory
        steps["BortA every 4"] = bort_step(bort.BortA, every=4)
        steps["SGD"] = torch.optim.SGD(groups(fresh()), lr=LR, momentum=0.9, fused=True).step
        steps["BortS"] = bort_step(bort.BortS, momentum=0.9)
    return steps


def muon(weights: list[Tensor]) -> Callable[[], Any]:
    """torch's Muon on the same matrices."""
    params = [nn.Parameter(w.reshape(w.shape[0], -1).clone()) for w in weights]
    for p in params:
        p.grad = torch.randn_like(p)
    return torch.optim.Muon(params, lr=LR).step


def geotorch(weights: list[Tensor]) -> Callable[[], Any]:
    """geotorch's orthogonal parametrization of the same matrices: what it adds to a forward and backward pass."""
    try:
        import geotorch as library
    except ImportError:
        raise SystemExit("--peers compares with geotorch, which is not installed: pip install geotorch") from None

    layers = []
    for w in weights:
        m, n = w.shape[0], w.numel() // w.shape[0]
        layer = nn.Linear(n, m, bias=False, device=w.device)
        library.orthogonal(layer, "weight")
        layers.append((layer, torch.randn(m, n, device=w.device)))

    def step() -> None:
        for layer, gradient in layers:
            layer.weight.backward(gradient)

    return step


PEERS: dict[str, Callable[[list[Tensor]], Callable[[], Any]]] = {"Muon": muon, "geotorch": geotorch}


def floor(weights: list[Tensor], bandwidth: float, rate: float) -> float:
    """Milliseconds nobody can beat: weights read and written once; one triangle of the Gram matrix and one product."""
    size = sum(2 * p.numel() * p.element_size() for p in weights)
    flops = 0.0
    for p in weights:
        m, n = p.shape[0], p.numel() // p.shape[0]
        flops += 3 * min(m, n) ** 2 * max(m, n)
    return 1e3 * max(size / bandwidth, flops / rate)


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
            _synchronize()
            start = time.perf_counter()
            count = max(repeats, 4) if name.endswith("every 4") else repeats  # whole cycles
            for _ in range(count):
                step()
            _synchronize()
            times[name].append(1e3 * (time.perf_counter() - start) / count)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def extra_memory(model: nn.Module, cls: Any, **settings: Any) -> float:
    """Peak memory of a step beyond that of the base optimizer's, in MiB."""
    peaks = []
    for optimizer_class in (cls.base, cls):
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer = optimizer_class(bort.param_groups(model, exclude=()), lr=LR, fused=True, **settings)
        optimizer.step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        optimizer.step()
        peaks.append(torch.cuda.max_memory_allocated() - before)
        del optimizer
    return (peaks[1] - peaks[0]) / 2**20


class Still(torch.optim.SGD):
    """Makes no step of its own, but keeps the gradients that it was given: those of the loss, here 0, and the penalty."""

    def step(self) -> None:  # type: ignore[override]
        self.gradients = [p.grad for group in self.param_groups for p in group["params"]]


def errors(weights: list[Tensor], off: float) -> dict[str, float]:
    """Relative error of the default penalty, ``off`` per entry from the constraint, against float64: worst and median."""
    relative = []
    for shape in {tuple(w.shape) for w in weights}:
        w = torch.empty(shape[0], weights[0].new_empty(shape)[0].numel(), device=weights[0].device)
        nn.init.orthogonal_(w)
        w += off * torch.randn_like(w)
        p = nn.Parameter(w.reshape(shape))
        p.grad = torch.zeros_like(p)
        optimizer = bort.bortify(Still)([p], lr=1e-6, constraint=1.0)
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
        result["error_at_1e-3"] = errors(weights, 1e-3)
        result["extra_memory_MiB"] = {
            "BortA": extra_memory(model, bort.BortA),
            "BortS": extra_memory(model, bort.BortS, momentum=0.9),
            "largest weight and its Gram": max(
                (4 * w.numel() + 4 * min(w.shape[0], w.numel() // w.shape[0]) ** 2) / 2**20 for w in weights
            ),
            "copy of the weights": sum(4 * w.numel() for w in weights) / 2**20,
        }
    return result


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def report(results: dict[str, dict[str, Any]]) -> str:
    rows = []
    for net, result in results.items():
        ms = result["step_ms"]
        ours, published = ms["BortA"] - ms["AdamW"], ms["published"] - ms["AdamW"]
        peers = result.get("peers_ms", {})
        rows.append(
            (
                net,
                f"{published / ours:.1f}×",
                f"{ours / result['floor_ms']:.1f}×",
                f"{ms['BortA'] / ms['AdamW']:.2f}×",
                f"{ours:.2f}",
                f"{ms['BortA every 4'] - ms['AdamW']:.2f}" if "BortA every 4" in ms else "–",
                f"{ms['BortS'] - ms['SGD']:.2f}" if "BortS" in ms else "–",
                f"{published:.2f}",
                f"{result['floor_ms']:.2f}",
                f"{ms['AdamW']:.2f}",
                *(f"{peers[name]:.1f}" if name in peers else "–" for name in PEERS),
            )
        )
    header = (
        "network",
        "faster than published",
        "of the floor",
        "BortA/AdamW",
        "BortA adds ms",
        "every 4",
        "BortS adds",
        "published",
        "floor",
        "AdamW",
        *PEERS,
    )
    return table(header, rows, right=range(1, len(header)))


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
