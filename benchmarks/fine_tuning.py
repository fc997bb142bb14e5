"""Fine-tuning: Bort on weights that begin far from the constraint. EfficientNet-Lite0, pretrained on ImageNet, learns digits.

    python benchmarks/fine_tuning.py                # all variants, three seeds; goes on where it was stopped
    python benchmarks/fine_tuning.py --table        # trains nothing: writes the table of docs/fine-tuning.md

The digits are mnist5k's 4,000 for training and 1,000 for testing, 64 pixels wide, in three equal channels. All weights are
trained, the classifier is new, and BatchNorm's momentum is torch's usual 0.1: with the network's own 0.01 a part of the
statistics would still be ImageNet's after 200 steps.

Measured at the end: accuracy on the test digits; and over all 1×1 convolutions, whichever are constrained, the medians of
σmax/σmin and of the residual relative to the target s, the root mean square of σ²/s − 1. s is 1, or with scale="initial" the
layer's own mean of σ² before the training; SGD, which has no target, is measured by the latter.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bort
from bort import data
from bort._environment import describe
from bort._files import write_atomically
from bort._table import table
from bort.layers import linear_maps

ROOT = Path(__file__).parents[1]
BATCH, MOMENTUM, SIZE = 64, 0.9, 64
BEGIN, END = "<!-- table of benchmarks/fine_tuning.py -->", "<!-- end of the table -->"


@dataclass(frozen=True)
class Variant:
    name: str
    constraint: float = 0.0
    scale: Any = 1.0
    warms_up: bool = False
    """Whether λ grows over all steps."""
    pointwise: bool = False
    """Whether only 1×1 convolutions are constrained, or all convolutions."""


def _both(name: str, **settings: Any) -> list[Variant]:
    return [Variant(name, **settings), Variant(f"{name}, 1×1 only", **settings, pointwise=True)]


VARIANTS = [
    Variant("SGD"),
    *_both("λ 0.1", constraint=0.1),
    *_both("λ 0.01", constraint=0.01),
    *_both("λ 0.1, warm-up", constraint=0.1, warms_up=True),
    *_both("λ 0.1, initial scale", constraint=0.1, scale="initial"),
    Variant("λ 0.1, initial scale, warm-up", constraint=0.1, scale="initial", warms_up=True),
    *_both("λ 0.025, initial scale", constraint=0.025, scale="initial"),
]


def efficientnet() -> nn.Module:
    """EfficientNet-Lite0 with ImageNet's weights and a new classifier for ten digits."""
    sys.path.append(str(ROOT / "examples"))
    from pretrained import model

    network = model()
    network._fc = nn.Linear(1280, 10)
    return network


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (N, 1, 64, 64) and labels, test images and labels, scaled as the network's training had it."""
    digits = data.load("mnist5k")
    train, test = (
        F.interpolate((images.float() - 127) / 128, size=SIZE, mode="bilinear")
        for images in (digits.train_images, digits.test_images)
    )
    return train, digits.train_labels, test, digits.test_labels


def optimizer_of(variant: Variant, model: nn.Module, steps: int, lr: float) -> torch.optim.Optimizer:
    if not variant.constraint:
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM)
    left_out = [
        name
        for name, weight, _, linear in linear_maps(model)
        if weight.ndim < 4 or (variant.pointwise and not _is_pointwise(weight, linear.blocks))
    ]
    groups = bort.param_groups(model, variant.constraint, exclude=left_out)
    warmup = steps if variant.warms_up else 0
    optimizer: torch.optim.Optimizer = bort.BortS(groups, lr=lr, momentum=MOMENTUM, scale=variant.scale, warmup=warmup)
    return optimizer


def _is_pointwise(weight: Tensor, blocks: int) -> bool:
    return weight.ndim == 4 and weight.shape[2:] == (1, 1) and blocks == 1


@torch.no_grad()
def singular_values(model: nn.Module) -> list[Tensor]:
    """Of all 1×1 convolutions, descending."""
    return [
        torch.linalg.svdvals(weight.flatten(1).double())
        for _, weight, _, linear in linear_maps(model)
        if _is_pointwise(weight, linear.blocks)
    ]


def spread(values: list[Tensor], scales: list[float]) -> dict[str, float]:
    """The medians over the layers of σmax/σmin, and of the residual relative to the scales."""
    ratios = [(sigma[0] / sigma[-1]).item() for sigma in values]
    residuals = [
        (sigma.square() / scale - 1).square().mean().sqrt().item() for sigma, scale in zip(values, scales, strict=True)
    ]
    return {"sigma_ratio": statistics.median(ratios), "residual": statistics.median(residuals)}


def train(
    variant: Variant,
    seed: int,
    steps: int,
    lr: float,
    images: tuple[Tensor, Tensor, Tensor, Tensor],
    build: Callable[[], nn.Module] = efficientnet,
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """One run: what it has come to, and how the network was before it."""
    torch.manual_seed(seed)
    model = build().train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.1
    before = singular_values(model)
    own_scales = [sigma.square().mean().item() for sigma in before]
    optimizer = optimizer_of(variant, model, steps, lr)
    x, y, test_x, test_y = images
    start = time.perf_counter()
    for step, batch in enumerate(_batches(len(x), steps, seed), 1):
        loss = F.cross_entropy(model(x[batch].expand(-1, 3, -1, -1)), y[batch])
        if not torch.isfinite(loss):
            raise RuntimeError(f"{variant.name}, seed {seed}: the loss is {loss.item()} at step {step}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(f"step {step} of {steps}, loss {loss.item():.3f}, {(time.perf_counter() - start) / step:.2f} s a step")
    seconds = time.perf_counter() - start
    is_to_one = variant.constraint > 0 and variant.scale != "initial"
    scales = [1.0] * len(own_scales) if is_to_one else own_scales
    return {
        "accuracy": accuracy(model, test_x, test_y),
        **spread(singular_values(model), scales),
        "loss": loss.item(),
        "seconds": round(seconds, 1),
        "before": spread(before, own_scales),
    }


def _batches(count: int, steps: int, seed: int) -> Iterator[Tensor]:
    """Of every epoch's random order, without what is left over at its end."""
    generator = torch.Generator().manual_seed(seed)
    batch = min(BATCH, count)
    while steps > 0:
        whole = torch.randperm(count, generator=generator).split(batch)[: min(steps, count // batch)]
        yield from whole
        steps -= len(whole)


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, labels: Tensor) -> float:
    model.eval()
    classes = torch.cat([model(part.expand(-1, 3, -1, -1)).argmax(dim=1) for part in x.split(250)])
    return (classes == labels).double().mean().item()


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/fine-tuning.md: a row for each variant, means over its seeds."""
    settings, runs = result["settings"], result["runs"]
    lines = ["| | test accuracy, % | σmax/σmin | residual |", "|---|---|---|---|"]
    before = runs[0]["before"]
    lines.append(f"| before the training | – | {before['sigma_ratio']:.2f} | {before['residual']:.2f} |")
    seeds = sorted({run["seed"] for run in runs})
    for name in dict.fromkeys(run["variant"]["name"] for run in runs):
        own = [run for run in runs if run["variant"]["name"] == name]
        ratio, residual = (statistics.mean(run[key] for run in own) for key in ("sigma_ratio", "residual"))
        some = f" ({len(own)} of {len(seeds)} seeds)" if len(own) < len(seeds) else ""
        lines.append(f"| {name}{some} | {_percent([run['accuracy'] for run in own])} | {ratio:.2f} | {residual:.2f} |")
    words = (
        f"{settings['steps']} steps, batch {settings['batch']}, rate {settings['lr']:g}, momentum {settings['momentum']:g}, "
        f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}; {result['hardware']}, torch {result['versions']['torch']}."
    )
    return "\n".join([*lines, "", words])


def _percent(parts: list[float]) -> str:
    deviation = f" ± {100 * statistics.stdev(parts):.1f}" if len(parts) > 1 else ""
    return f"{100 * statistics.mean(parts):.1f}{deviation}"


def with_table(page: str, rendered: str) -> str:
    """The page with the table between its two marks."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f"the page needs the lines {BEGIN} and {END}, once each and in this order")
    head, tail = page[: page.index(BEGIN)], page[page.index(END) :]
    return f"{head}{BEGIN}\n{rendered}\n{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", choices=[v.name for v in VARIANTS], metavar="NAME", help="some only")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/fine_tuning-cpu.json")
    parser.add_argument("--table", action="store_true", help="write the table of docs/fine-tuning.md from --out")
    given = parser.parse_args()
    if given.table:
        page = ROOT / "docs/fine-tuning.md"
        write_atomically(page, with_table(page.read_text(), markdown(json.loads(given.out.read_text()))))
        return
    warnings.filterwarnings("ignore", ".*is far from its constraint")  # that is what is measured here
    settings = {"steps": given.steps, "lr": given.lr, "batch": BATCH, "momentum": MOMENTUM, "size": SIZE}
    result = _begun(given.out, settings)
    wanted = [(v, s) for s in given.seeds for v in VARIANTS if given.variants is None or v.name in given.variants]
    done = [(run["variant"], run["seed"]) for run in result["runs"]]
    missing = [(variant, seed) for variant, seed in wanted if (asdict(variant), seed) not in done]
    images = digits()
    for number, (variant, seed) in enumerate(missing, 1):
        about = f"{number} of {len(missing)}: {variant.name}, seed {seed}"
        run = train(
            variant, seed, given.steps, given.lr, images, say=lambda words, about=about: _say(f"{about}: {words}")
        )
        result["runs"].append({"variant": asdict(variant), "seed": seed, "commit": describe(seed)["commit"], **run})
        write_atomically(given.out, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        _say("")
        print(f"{about}: {run['accuracy']:.1%}, σmax/σmin {run['sigma_ratio']:.2f}, {run['seconds']} s", flush=True)
    rows = [
        (r["variant"]["name"], str(r["seed"]), *(f"{r[key]:.3f}" for key in ("accuracy", "sigma_ratio", "residual")))
        for r in result["runs"]
    ]
    print(table(("variant", "seed", "accuracy", "σmax/σmin", "residual"), rows, right=(1, 2, 3, 4)))


def _begun(file: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The results so far, with this machine's description; an error if they are of other settings."""
    about = {key: value for key, value in describe(0).items() if key != "seed"}
    if not file.exists():
        return {"command": "python benchmarks/fine_tuning.py", **about, "settings": settings, "runs": []}
    result: dict[str, Any] = json.loads(file.read_text())
    if result["settings"] != settings:
        sys.exit(f"{file} has results of other settings ({result['settings']}): give another --out")
    return result | about


def _say(words: str) -> None:
    """On the last line, instead of what it said before."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
