"""Images a second in trainings on an image folder: weights in channels_last, or in the format that `bort.train` chooses.

    python benchmarks/rates.py --data DIR [--recipes tiny-imagenet-resnet50-bort-s …] [--steps 40] --out FILE.json

DIR holds tiny-imagenet-100/. Each recipe runs as `bort train` would run it, reading and augmentation included, and is
stopped after its first steps. The first ten are not counted: workers and kernels are started in them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from bort import train
from bort._environment import describe
from bort._table import table

ROWS = ("vgg16-bort-s", "resnet50-bort-s", "resnet50-bort-l", "deit-s-bort-a", "swin-s-bort-a")
SIDES = ("channels_last", "bort.train")
FIRST = 10


def rate(name: str, root: Path, steps: int, workers: int, *, side: str) -> dict[str, Any]:
    recipe, times = train.recipes.get(name), {}

    def on_step(step: int) -> None:
        torch.cuda.synchronize() if torch.cuda.is_available() else None
        times[step] = time.perf_counter()
        if step == FIRST + steps:
            signal.raise_signal(signal.SIGTERM)

    always = mock.patch("bort.train._assemble.layout", return_value=torch.channels_last)
    memory_format = always if side == "channels_last" else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as folder, memory_format, contextlib.suppress(train.Interrupted):
        train.fit(recipe, folder, train.Runtime(data_root=root, workers=workers), on_step=on_step)
    seconds = (times[FIRST + steps] - times[FIRST]) / steps
    return {
        "recipe": name,
        "side": side,
        "batch": recipe.batch,
        "step_ms": 1e3 * seconds,
        "images_s": recipe.batch / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="default: $BORT_DATA, or ~/.cache/bort")
    parser.add_argument("--recipes", nargs="+", default=[f"tiny-imagenet-{row}" for row in ROWS])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    measured: list[dict[str, Any]] = []
    for name in arguments.recipes:
        for side in SIDES:
            measured.append(rate(name, arguments.data, arguments.steps, arguments.workers, side=side))
            print(f"{name}, {side}: {measured[-1]['images_s']:,.0f} images/s", flush=True)
            result = {
                "rows": measured,
                "workers": arguments.workers,
                "command": "python benchmarks/rates.py",
                **describe(0),
            }
            arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    rates = {(row["recipe"], row["side"]): f"{row['images_s']:,.0f}" for row in measured}
    rows = [(name, *(rates[name, side] for side in SIDES)) for name in arguments.recipes]
    print(table(("images/s", *SIDES), rows, right=(1, 2)))


if __name__ == "__main__":
    main()
