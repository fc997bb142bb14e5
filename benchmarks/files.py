"""Images a second that worker processes bring from JPEG files of many sizes: decoded and cropped, the rest is the device's.

    python benchmarks/files.py [--images 6000] [--workers 2] --out FILE.json
    python benchmarks/files.py --profile --out FILE.json    # CPU time of each part for an image, in one process

Both sides in one run, alternating, on the same files (500 × 375 and 375 × 500, 200 pictures made here and copies of them,
quality 90) at 224 px: timm's
transforms in the workers, as version 0.1.0 did it (crop, RandAugment, normalisation, erasing), and `bort.train`'s own feed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from bort import data, train
from bort._environment import describe
from bort._table import table
from bort.augment import crop_boxes, crop_with_pil, image_keys
from bort.train._images import feed_for
from bort.train._world import World

DISTINCT = 200
BATCH = 32
PREFETCHED = 2  # torch's default, which the feed has as well
RECIPES = ("imagenet-deit-s-adamw", "imagenet-resnet50-sgd")


class TimmSamples(TorchDataset[torch.Tensor]):
    """What a worker of version 0.1.0 did with an image."""

    def __init__(self, folder: data.Folder, recipe: train.Recipe) -> None:
        from timm.data import create_transform

        self._folder, augment = folder, recipe.augment
        options: dict[str, Any] = {"is_training": True, "auto_augment": augment.randaugment, "interpolation": "random"}
        options |= {"re_mode": "pixel", "separate": True, "color_jitter": None}
        self._stages = create_transform(recipe.data.image_size, **options, re_prob=augment.erase)
        *_, self._clean = create_transform(recipe.data.image_size, **options)
        self._splits = augment.splits

    def __len__(self) -> int:
        return len(self._folder.train_files)

    def __getitem__(self, index: int) -> torch.Tensor:
        crop, change, finish = self._stages
        cropped = crop(self._folder.read(self._folder.train_files[index][0]))
        clean = [self._clean(cropped)] if self._splits else []
        return torch.stack([*clean, *(finish(change(cropped)) for _ in range(max(1, self._splits - 1)))])


def make_images(root: Path, count: int) -> None:
    generator = np.random.default_rng(0)
    for split, images in (("train", count), ("val", 2)):
        folder = root / "photos" / split / "a"
        folder.mkdir(parents=True)
        for number in range(images):
            if number >= DISTINCT:
                shutil.copy(folder / f"{number % DISTINCT:05}.jpg", folder / f"{number:05}.jpg")
                continue
            coarse = generator.integers(0, 256, (16, 12, 3), dtype=np.uint8)
            size = (500, 375) if number % 3 else (375, 500)
            picture = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
            noise = generator.normal(0, 6, (size[1], size[0], 3))
            pixels = np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:05}.jpg", quality=90)


def timm_rate(folder: data.Folder, recipe: train.Recipe, workers: int) -> float:
    loader = DataLoader(TimmSamples(folder, recipe), recipe.batch, num_workers=workers, drop_last=True)
    return _rate((len(batch) for batch in loader), workers)


def our_rate(folder: data.Folder, recipe: train.Recipe, workers: int) -> float:
    runtime = train.Runtime(workers=workers, images="files")
    feed = feed_for(folder, recipe, runtime, World(torch.device("cpu")), torch.contiguous_format, lambda _: None)
    try:
        return _rate((batch.count for batch in feed.batches(0, 0)), workers)
    finally:
        feed.close()


def _rate(counts: Iterator[int], workers: int) -> float:
    """Images a second while every worker is busy. Both loaders work on `PREFETCHED` batches a worker before they are asked
    for, so as many at the beginning have been made before they are counted, and as many at the end leave workers idle."""
    arrived = [(time.perf_counter(), count) for count in counts]
    ahead = PREFETCHED * workers
    if len(arrived) < 4 * ahead:
        raise SystemExit(
            f"{len(arrived)} batches are too few for {workers} workers: give --images {4 * ahead * BATCH} or more"
        )
    middle = arrived[ahead : len(arrived) - ahead]
    return sum(count for _, count in middle[1:]) / (middle[-1][0] - middle[0][0])


def profile(folder: data.Folder, recipe: train.Recipe) -> dict[str, float]:
    """Milliseconds of CPU time an image, of what both sides do and of what timm's transforms do besides."""
    samples, size = TimmSamples(folder, recipe), recipe.data.image_size
    crop, change, finish = samples._stages
    files = [file for file, _ in folder.train_files[:DISTINCT]]
    boxes = [crop_boxes(image_keys(7, torch.tensor([n])), 375, 375) for n in range(len(files))]
    decoded, decoding = _timed(folder.read, files)
    _, cropping = _timed(lambda pair: crop_with_pil(pair[0], pair[1], size), list(zip(decoded, boxes, strict=True)))
    cropped, timm_cropping = _timed(crop, decoded)
    _, rest = _timed(lambda image: finish(change(image)), cropped)
    return {"decode": decoding, "crop, bort": cropping, "crop, timm": timm_cropping, "the rest, timm": rest}


def _timed(function: Callable[[Any], Any], items: Sequence[Any]) -> tuple[list[Any], float]:
    function(items[0])
    start = time.process_time()
    results = [function(item) for item in items]
    return results, 1e3 * (time.process_time() - start) / len(items)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="only this")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = []
    if arguments.profile:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as root:
            make_images(Path(root), DISTINCT)
            parts = profile(data.load("folder:photos", root), train.recipes.get(RECIPES[0]))
        print(table(("part", "ms an image"), [(part, f"{ms:.2f}") for part, ms in parts.items()], right=(1,)))
        whole = {"command": "python benchmarks/files.py --profile", "recipe": RECIPES[0], "ms": parts, **describe(0)}
        arguments.out.write_text(json.dumps(whole, indent=2) + "\n")
        return
    with tempfile.TemporaryDirectory() as root:
        make_images(Path(root), arguments.images)
        folder = data.load("folder:photos", root)
        for name in RECIPES:
            recipe = train.recipes.get(name)
            recipe = replace(recipe, batch=BATCH, data=replace(recipe.data, name="folder:photos", classes=1))
            rates: dict[str, list[float]] = {"timm": [], "bort": []}
            for _ in range(arguments.rounds):
                rates["timm"].append(timm_rate(folder, recipe, arguments.workers))
                rates["bort"].append(our_rate(folder, recipe, arguments.workers))
            medians = {side: statistics.median(values) for side, values in rates.items()}
            rows.append({"recipe": name, "images_s": rates, "ratio": medians["bort"] / medians["timm"]} | medians)
            print(f"{name}: {medians['timm']:.0f} → {medians['bort']:.0f} images/s", flush=True)
    options = f"--images {arguments.images} --workers {arguments.workers} --rounds {arguments.rounds}"
    command = f"python benchmarks/files.py {options}"
    result = {"rows": rows, "workers": arguments.workers, "images": arguments.images, "command": command, **describe(0)}
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    shown = [(row["recipe"], f"{row['timm']:.0f}", f"{row['bort']:.0f}", f"{row['ratio']:.1f}") for row in rows]
    print(table(("images/s", "timm's transforms", "bort", "×"), shown, right=(1, 2, 3)))


if __name__ == "__main__":
    main()
