"""A whole training with and without the penalty: ACNN-Small on CIFAR-10 in the recipe of Table 1, seconds and accuracy.

    python benchmarks/train.py --data DIR/cifar-10-batches-bin [--seeds 0 1 2] [--epochs 40] --out FILE.json

SGD, Bort-S at every step and Bort-S at each fourth step run the same loop: bfloat16 autocast, channels_last, batch 256, lr
0.01, momentum 0.9, weight decay 0.01, λ 0.1, no augmentation. Times are the median epoch's: compilation and warm-up do not
count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from environment import describe, synchronize
from torch import Tensor
from torch.nn import functional as F

from bort import BortS, nets, penalty
from bort._table import table

BATCH = 256
RECIPE: dict[str, Any] = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.01, "fused": True}
VARIANTS: dict[str, Any] = {
    "SGD": lambda params: torch.optim.SGD(params, **RECIPE),
    "Bort-S": lambda params: BortS(params, constraint=0.1, **RECIPE),
    "Bort-S every 4": lambda params: BortS(params, constraint=0.1, every=4, **RECIPE),
}


def read(folder: Path, names: list[str], device: str) -> tuple[Tensor, Tensor]:
    """CIFAR-10's binary version: a byte of label, then 3·32·32 of image."""
    records = np.concatenate([np.fromfile(folder / f"{name}.bin", np.uint8).reshape(-1, 3073) for name in names])
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32)).to(device)
    return images, torch.from_numpy(records[:, 0].astype(np.int64)).to(device)


def noise(count: int, device: str) -> tuple[Tensor, Tensor]:
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, device=device)
    return images, torch.randint(0, 10, (count,), device=device)


def train(variant: str, seed: int, epochs: int, data: dict[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
    (images, labels), (test_images, test_labels) = data["train"], data["test"]
    pixels = images.float() / 255
    mean, std = pixels.mean(dim=(0, 2, 3), keepdim=True), pixels.std(dim=(0, 2, 3), keepdim=True)
    del pixels
    torch.manual_seed(seed)
    device = images.device
    model = nets.create("acnn-small", channels=3, image_size=32).to(device, memory_format=torch.channels_last)
    optimizer = VARIANTS[variant](model.parameters())

    def normalise(batch: Tensor) -> Tensor:
        return ((batch.float() / 255 - mean) / std).to(memory_format=torch.channels_last)

    seconds = []
    for epoch in range(epochs):
        synchronize()
        start = time.perf_counter()
        for index in torch.randperm(len(images), device=device).split(BATCH)[: len(images) // BATCH]:
            with torch.autocast(device.type, torch.bfloat16):
                loss = F.cross_entropy(model(normalise(images[index])), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        synchronize()
        seconds.append(time.perf_counter() - start)
        if epoch % 10 == 0 or epoch == epochs - 1:
            print(
                f"{variant:16} seed {seed} epoch {epoch + 1}: loss {loss.item():.3f}, {seconds[-1]:.2f} s", flush=True
            )
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        right = sum(
            (model(normalise(x)).argmax(dim=1) == y).sum().item()
            for x, y in zip(test_images.split(1000), test_labels.split(1000), strict=True)
        )
    distances = [penalty.residual(p.detach()).item() for p in model.parameters() if p.ndim >= 2]
    return {
        "variant": variant,
        "seed": seed,
        "epochs": epochs,
        "accuracy": right / len(test_labels),
        "residuals": distances,
        "median_epoch_s": statistics.median(seconds),
        "total_s": sum(seconds),
    }


def report(runs: list[dict[str, Any]]) -> str:
    base = statistics.median(run["median_epoch_s"] for run in runs if run["variant"] == "SGD")
    rows = []
    for variant in VARIANTS:
        mine = [run for run in runs if run["variant"] == variant]
        if mine:
            accuracy = [100 * run["accuracy"] for run in mine]
            residual = [max(run["residuals"]) for run in mine]
            epoch = statistics.median(run["median_epoch_s"] for run in mine)
            rows.append(
                (
                    variant,
                    f"{epoch / base:.3f}×",
                    f"{epoch:.2f}",
                    f"{statistics.mean(accuracy):.2f} ± {statistics.pstdev(accuracy):.2f} ({len(mine)})",
                    f"{statistics.mean(residual):.4f} ± {statistics.pstdev(residual):.4f}",
                )
            )
    return table(("optimizer", "time", "s/epoch", "accuracy %", "largest residual"), rows, right=(1, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, help="the folder with data_batch_1.bin and the others; without: noise, to time only"
    )
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path, required=True, help="runs are added to the ones it has")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if arguments.data:
        data = {
            "train": read(arguments.data, [f"data_batch_{i}" for i in range(1, 6)], device),
            "test": read(arguments.data, ["test_batch"], device),
        }
    else:
        data = {"train": noise(50_000, device), "test": noise(10_000, device)}
    whole = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"runs": []}
    for seed in arguments.seeds:
        for variant in arguments.variants:
            whole["runs"].append(train(variant, seed, arguments.epochs, data))
            whole |= describe(seed) | {
                "command": f"python benchmarks/train.py --epochs {arguments.epochs}",
                "data": "CIFAR-10" if arguments.data else "noise",
            }
            arguments.out.write_text(json.dumps(whole, indent=2) + "\n")
    print(report(whole["runs"]))


if __name__ == "__main__":
    main()
