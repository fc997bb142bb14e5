"""Whole trainings of Table 1: `bort.train` beside a plain torch loop, and beside what the penalty adds; seconds and accuracy.

    python benchmarks/train.py --data DIR [--recipes mnist-lenet-sgd …] [--seeds 0] [--epochs 40] --out FILE.json

DIR holds mnist/ and cifar-10-batches-bin/, as `bort.data` reads them. For each recipe both sides run the same data, network,
optimizer and number of steps in one process, one after the other; the plain side pools as one would write it, with
F.adaptive_max_pool2d. Seconds are those of the whole call, with everything in them that a user waits for: reading and
checking the data on both sides; the plain loop tests once, at the end; ours tests and measures after each epoch and writes a
checkpoint.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F

from bort import data, train
from bort._environment import describe
from bort._table import table
from bort.train._build import network_of
from bort.train._optimizer import optimizer_for
from bort.train.recipes import Recipe

RECIPES = ("mnist-lenet-sgd", "mnist-lenet-bort-s", "cifar10-acnn-small-sgd", "cifar10-acnn-small-bort-s")


def plain(recipe: Recipe, root: Path, device: str) -> dict[str, Any]:
    """What anybody would write: images on the device, bfloat16 autocast and channels_last for the larger network, SGD."""
    start = time.perf_counter()
    images = data.load(recipe.data.name, root)
    assert isinstance(images, data.Dataset)
    images = images.to(device)
    mean, std = (s.float().view(1, -1, 1, 1) for s in images.statistics())
    autocast = recipe.precision == "auto" and device == "cuda"
    memory_format = torch.channels_last if autocast else torch.contiguous_format
    torch.manual_seed(recipe.seed)
    model = network_of(recipe).to(device, memory_format=memory_format)
    optimizer = optimizer_for(recipe.optim, model, torch.device(device))

    def outputs(batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            return model(((batch.float() / 255 - mean) / std).contiguous(memory_format=memory_format))

    for _ in range(recipe.epochs):
        for index in torch.randperm(len(images.train_images), device=device).split(recipe.batch):
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                loss = F.cross_entropy(outputs(images.train_images[index]), images.train_labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        right = sum(
            (outputs(x).argmax(dim=1) == y).sum().item()
            for x, y in zip(images.test_images.split(1000), images.test_labels.split(1000), strict=True)
        )
    _synchronize()
    return {"accuracy": right / len(images.test_labels), "seconds": time.perf_counter() - start}


def ours(recipe: Recipe, root: Path, device: str) -> dict[str, Any]:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = train.fit(recipe, folder, train.Runtime(device=device, data_root=root))
        seconds = time.perf_counter() - start
    last = run.history[-1]
    return {
        "accuracy": last["accuracy"],
        "seconds": seconds,
        "training_seconds": last["seconds"],
        "residual": last["residual"],
        "sigma": last["sigma"],
        "loss": [record["loss"] for record in run.history],
    }


def _adaptive(maps: torch.Tensor) -> torch.Tensor:
    return F.adaptive_max_pool2d(maps, 1).flatten(1)


def _warm_up(device: str) -> None:
    """Start CUDA and its libraries, which is not part of a training's time."""
    layer = torch.nn.Conv2d(3, 8, 3).to(device)
    F.cross_entropy(
        layer(torch.randn(8, 3, 8, 8, device=device)).flatten(1), torch.zeros(8, dtype=torch.long, device=device)
    ).backward()
    _synchronize()


def report(runs: list[dict[str, Any]]) -> str:
    rows = []
    for name in dict.fromkeys(run["recipe"] for run in runs):
        for side in ("plain", "bort.train"):
            selected = [run for run in runs if (run["recipe"], run["side"]) == (name, side)]
            if selected:
                accuracy = ", ".join(f"{100 * run['accuracy']:.2f}" for run in selected)
                residual = ", ".join(f"{run['residual']:.4f}" for run in selected if "residual" in run)
                rows.append(
                    (name, side, f"{statistics.median(r['seconds'] for r in selected):.1f}", accuracy, residual)
                )
    return table(("recipe", "loop", "seconds", "accuracy %", "residual"), rows, right=(2,))


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="default: $BORT_DATA, or ~/.cache/bort")
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--sides", nargs="+", default=["plain", "bort.train"], choices=["plain", "bort.train"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--every", type=int, default=1, help="the penalty at each k-th step")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--out", type=Path, required=True, help="runs are added to the ones it has")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    whole = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"runs": []}
    _warm_up(device)
    for seed in arguments.seeds:
        for name in arguments.recipes:
            recipe = replace(train.recipes.get(name), seed=seed)
            if arguments.every > 1:
                optim = replace(recipe.optim, every=arguments.every)
                recipe = replace(recipe, name=f"{name} every {arguments.every}", optim=optim)
            recipe = replace(recipe, epochs=arguments.epochs or recipe.epochs)
            for side in arguments.sides:
                if side == "plain":
                    with mock.patch("bort.nets._acnn._pool", _adaptive):
                        measured = plain(recipe, arguments.data, device)
                else:
                    measured = ours(recipe, arguments.data, device)
                whole["runs"].append(
                    {"recipe": recipe.name, "side": side, "seed": seed, "epochs": recipe.epochs, **measured}
                )
                print(f"{recipe.name} {side}: {measured['seconds']:.1f} s, {measured['accuracy']:.2%}", flush=True)
                whole |= describe(seed) | {"command": "python benchmarks/train.py"}
                arguments.out.write_text(json.dumps(whole, indent=2) + "\n")
    print(report(whole["runs"]))


if __name__ == "__main__":
    main()
