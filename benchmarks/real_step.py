"""What Bort adds to a real training step: forward, backward and the optimizer, in a plain loop of torch.

    python benchmarks/real_step.py [--nets DeiT-S …] [--rounds 5] [--out FILE.json]

All variants of a network in one process, in turn, each with a copy of its own; the ratio is the median over the rounds of
variant to base in the same round. A round is several steps on one batch of noise that stays on the device, as a loop without
a bottleneck in its data makes them. On a GPU: 64 px, 256 images, bfloat16 autocast and channels_last for convolutions, fused
optimizers (ACNN-Small: 32 px). On a CPU everything is small, so that it can be tried.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import bort
from bort import nets
from bort._environment import describe
from bort._table import table

SEED, CLASSES = 0, 100


@dataclass(frozen=True)
class Setting:
    """A network, as the recipes for it have it, and what Bort may add."""

    net: str
    base: str
    target: float
    size: int = 64
    options: dict[str, Any] = field(default_factory=dict)


SETTINGS = {
    "DeiT-S": Setting("timm/deit_small_patch16_224", "AdamW", 1.03, options={"patch_size": 8, "drop_path_rate": 0.1}),
    "Swin-S": Setting("timm/swin_small_patch4_window7_224", "AdamW", 1.03, options={"drop_path_rate": 0.3}),
    "ResNet-50": Setting("timm/resnet50", "AdamW", 1.03),
    "ACNN-Small": Setting("acnn-small", "SGD", 1.18, size=32),
}
BASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "AdamW": (torch.optim.AdamW, bort.BortA, {"lr": 1e-4, "weight_decay": 0.005}),
    "SGD": (torch.optim.SGD, bort.BortS, {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.01}),
}


def optimizers(model: nn.Module, base: str, fused: bool) -> dict[str, torch.optim.Optimizer]:
    """One of each kind, on a copy of the model each: `owner` finds the copy again."""
    plain, ours, settings = BASES[base]
    settings = settings | {"fused": fused}

    def made(cls: Any, params: Callable[[nn.Module], Any], **more: Any) -> torch.optim.Optimizer:
        own = copy.deepcopy(model)
        optimizer: torch.optim.Optimizer = cls(params(own), **settings, **more)
        optimizer.owner = own  # type: ignore[attr-defined]
        return optimizer

    return {
        base: made(plain, bort.param_groups),
        ours.__name__: made(ours, bort.param_groups, constraint=0.05),
        f"{ours.__name__}, model.parameters()": made(ours, nn.Module.parameters, constraint=0.05),
        f"{ours.__name__}, every=4": made(ours, bort.param_groups, constraint=0.05, every=4),
    }


def training_step(optimizer: Any, images: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    model, device = optimizer.owner, images.device.type

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def compare(setting: Setting, rounds: int, steps: int, batch: int, device: str) -> dict[str, Any]:
    torch.manual_seed(SEED)
    model = nets.create(setting.net, channels=3, classes=CLASSES, image_size=setting.size, **setting.options).to(device)
    images = torch.randn(batch, 3, setting.size, setting.size, device=device)
    if device == "cuda":
        model, images = (x.to(memory_format=torch.channels_last) for x in (model, images))  # type: ignore[attr-defined]
    model.train()
    labels = torch.randint(CLASSES, (batch,), device=device)
    with warnings.catch_warnings():  # plain parameters are to be measured, and what is said of them is known
        warnings.simplefilter("ignore", UserWarning)
        made = optimizers(model, setting.base, device == "cuda")
    variants = {name: training_step(optimizer, images, labels) for name, optimizer in made.items()}
    times = [{name: _milliseconds(step, steps) for name, step in variants.items()} for _ in range(rounds + 1)]
    times = times[1:]  # the first one compiles, records and lets cuDNN choose
    return {
        "batch": batch,
        "ms": {name: statistics.median(round_[name] for round_ in times) for name in variants},
        "of_base": {name: statistics.median(r[name] / r[setting.base] for r in times) for name in variants},
        "target": setting.target,
    }


def _milliseconds(step: Callable[[], None], count: int) -> float:
    _wait()
    start = time.perf_counter()
    for _ in range(count):
        step()
    _wait()
    return 1e3 * (time.perf_counter() - start) / count


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cuda = torch.cuda.is_available()
    parser.add_argument("--nets", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--rounds", type=int, default=5 if cuda else 1)
    parser.add_argument("--steps", type=int, default=12 if cuda else 4, help="of a round; a multiple of 4")
    parser.add_argument("--batch", type=int, default=256 if cuda else 2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    options = f"--rounds {arguments.rounds} --steps {arguments.steps} --batch {arguments.batch}"
    whole: dict[str, Any] = {
        "command": f"python benchmarks/real_step.py --nets {' '.join(arguments.nets)} {options}",
        "results": {},
        **describe(SEED),
    }
    for net in arguments.nets:
        result = compare(SETTINGS[net], arguments.rounds, arguments.steps, arguments.batch, "cuda" if cuda else "cpu")
        whole["results"][net] = result
        rows = [(name, f"{ms:.2f}", f"{result['of_base'][name]:.3f}") for name, ms in result["ms"].items()]
        print(table((f"{net}, target {result['target']}", "ms a step", "of the base"), rows, right=(1, 2)), flush=True)
        if arguments.out:  # after each: the next one may be too much for the machine
            arguments.out.write_text(json.dumps(whole, indent=2) + "\n")
        gc.collect()


if __name__ == "__main__":
    main()
