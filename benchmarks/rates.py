"""Images a second in trainings on an image folder: fed, with everything on, against the pure step on a fixed batch.

    python benchmarks/rates.py --data DIR [--recipes tiny-imagenet-resnet50-bort-s …] [--steps 60] --out FILE.json

DIR holds tiny-imagenet-100/. Both sides are the step that `bort train` makes, in one process, one after the other: the same
network, loss, optimizer and CUDA graph. The pure step gets one augmented batch that stays on the device; the fed one its own
images at each step, gathered and augmented. "Images" are those of the folder: three views of one count once.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bort import train
from bort._environment import describe
from bort._table import table
from bort.train._assemble import Parts, assemble
from bort.train._capture import CapturedStep
from bort.train._feed import Batch
from bort.train._step import Step
from bort.train._world import World

ROWS = (
    *("vgg16-sgd", "vgg16-bort-s", "vgg16-adamw", "vgg16-bort-a"),
    *("resnet50-sgd", "resnet50-bort-s", "resnet50-adamw", "resnet50-bort-a", "resnet50-lamb", "resnet50-bort-l"),
    *("deit-s-adamw", "deit-s-bort-a", "swin-s-adamw", "swin-s-bort-a", "acnn-base-sgd", "acnn-base-bort-s"),
)
WARM_UP = 12  # workers, libraries and captures


class FixedBatch:
    """A feed whose batch is on the device already."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self._batch = inputs, targets

    def read(self, _: Batch) -> tuple[Tensor, Tensor]:
        return self._batch


def seconds_a_step(step: Callable[[Batch], None], batches: Iterator[Batch], steps: int) -> float:
    for _ in range(WARM_UP):
        step(next(batches))
    _wait()
    start = time.perf_counter()
    for _ in range(steps):
        step(next(batches))
    _wait()
    return (time.perf_counter() - start) / steps


def measure(name: str, runtime: train.Runtime, steps: int) -> dict[str, Any]:
    recipe = train.recipes.get(name)
    world = World(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    parts = assemble(recipe, runtime, world)
    parts.net.train()
    fed = seconds_a_step(parts.train_on, endless(parts), steps)
    batch = next(parts.feed.batches(0, 0))
    pure_step = Step(
        parts.step.model,
        parts.optimizer,
        parts.step.loss,
        FixedBatch(*(tensor.clone() for tensor in parts.feed.read(batch))),  # type: ignore[arg-type]
        world.device,
        parts.autocast,
        recipe.optim.clip,
    )
    captured = isinstance(parts.train_on, CapturedStep)
    empty = Batch({}, batch.count, 1.0)
    pure = seconds_a_step(CapturedStep(pure_step, world) if captured else pure_step, repeat(empty), steps)
    parts.feed.close()
    return {
        "recipe": name,
        "batch": recipe.batch,
        "fed_ms": 1e3 * fed,
        "pure_ms": 1e3 * pure,
        "fed_images_s": recipe.batch / fed,
        "pure_images_s": recipe.batch / pure,
        "fed_over_pure": pure / fed,
        "epoch_s": fed * parts.feed.per_epoch,
        "notes": list(parts.notes),
    }


def endless(parts: Parts) -> Iterator[Batch]:
    epoch = 0
    while True:
        yield from parts.feed.batches(epoch, 0)
        epoch += 1


def repeat(batch: Batch) -> Iterator[Batch]:
    while True:
        yield batch


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="default: $BORT_DATA, or ~/.cache/bort")
    parser.add_argument("--recipes", nargs="+", default=[f"tiny-imagenet-{row}" for row in ROWS])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--images", default="auto", choices=("auto", "device", "host", "files"))
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--no-graphs", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    runtime = train.Runtime(
        data_root=arguments.data,
        workers=arguments.workers,
        images=arguments.images,
        compile=arguments.compile,
        graphs=not arguments.no_graphs,
    )
    rows: list[dict[str, Any]] = []
    for name in arguments.recipes:
        rows.append(measure(name, runtime, arguments.steps))
        print(f"{name}: {rows[-1]['fed_images_s']:,.0f} of {rows[-1]['pure_images_s']:,.0f} images/s", flush=True)
        result = {"rows": rows, "workers": arguments.workers, "command": "python benchmarks/rates.py", **describe(0)}
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
        gc.collect()
    formats = {"recipe": "", "pure_ms": ".1f", "fed_ms": ".1f", "fed_over_pure": ".2f", "fed_images_s": ",.0f"}
    shown = [tuple(format(row[name], style) for name, style in formats.items()) for row in rows]
    print(table(("", "pure step, ms", "fed, ms", "pure ÷ fed", "images/s"), shown, right=(1, 2, 3, 4)))


if __name__ == "__main__":
    main()
