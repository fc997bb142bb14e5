"""Augmentation in batches: what each stage takes on this device, next to timm's transforms on one core.

    python benchmarks/augment.py [--batch 256] [--size 64] [--randaugment rand-m9-mstd0.5] [--erase 0.25] [--out FILE.json]

Images are of the size they are cropped to and lie on the device as bytes. On a GPU each stage is timed twice, called one
by one (eager) and as a replayed CUDA graph (captured), which is what a training step sees. timm's are timed without decoding.
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
from torch import Tensor

from bort._environment import describe
from bort._table import table
from bort.augment import Augmentation, crop_boxes, image_keys, mix_draw, mixed, resized_crops

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES = 100
TIMMS_IMAGES = 256

Stage = Callable[[], Any]


def stages(images: Tensor, size: int, settings: dict[str, Any]) -> dict[str, Stage]:
    device, count = images.device, len(images)
    index, base = torch.arange(count, device=device), torch.tensor(2**62 + 1, device=device)
    keys = image_keys(base, index)
    boxes = crop_boxes(keys, *images.shape[2:])
    crops = resized_crops(images, boxes, size)
    whole = Augmentation(size, MEAN, STD, **settings)
    labels = torch.arange(count, device=device).repeat(whole.views) % CLASSES
    result, draw = whole(images, keys), mix_draw(1, 0.8, 1.0, size).to(device)

    def finish(**some: Any) -> Stage:
        augmentation = Augmentation(size, MEAN, STD, **some, splits=settings["splits"])
        return lambda: augmentation.finish(crops, keys)

    def everything() -> tuple[Tensor, Tensor]:
        return mixed(whole(images, image_keys(base, index)), labels, draw, CLASSES, 0.1, views=whole.views)

    return {
        "keys": lambda: image_keys(base, index),
        "crop boxes": lambda: crop_boxes(keys, *images.shape[2:]),
        "resized crops": lambda: resized_crops(images, boxes, size),
        "views, normalised": finish(),
        "… with RandAugment": finish(randaugment=settings["randaugment"]),
        "… with erasing": finish(erase=settings["erase"]),
        "… with both": finish(randaugment=settings["randaugment"], erase=settings["erase"]),
        "mixup or cutmix": lambda: mixed(result, labels, draw, CLASSES, 0.1, views=whole.views),
        "everything": everything,
    }


def eager_ms(stage: Stage, device: torch.device, rounds: int) -> float:
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        stage()
        torch.cuda.synchronize() if device.type == "cuda" else None
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def captured_ms(stage: Stage, rounds: int) -> float:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        stage()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stage()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    begin.record()
    for _ in range(rounds):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / rounds


def timms_ms(images: Tensor, size: int, settings: dict[str, Any]) -> float:
    """For a view of an image, on one core: cropped, augmented, normalised, erased."""
    from PIL import Image
    from timm.data import create_transform

    transform = create_transform(
        size,
        is_training=True,
        color_jitter=None,
        auto_augment=settings["randaugment"] or None,
        interpolation="random",
        mean=MEAN,
        std=STD,
        re_prob=settings["erase"],
        re_mode="pixel",
    )
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images[:TIMMS_IMAGES].cpu()]
    start = time.perf_counter()
    for picture in pictures:
        transform(picture)
    return 1e3 * (time.perf_counter() - start) / len(pictures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--randaugment", default="rand-m9-mstd0.5")
    parser.add_argument("--erase", type=float, default=0.25)
    parser.add_argument("--splits", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = {"randaugment": options.randaugment, "erase": options.erase, "splits": options.splits}
    side = options.size
    coarse = torch.rand(options.batch, 3, 8, 8) * 255
    images = torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear").byte().to(device)
    measured: dict[str, dict[str, float]] = {}
    for name, stage in stages(images, side, settings).items():
        measured[name] = {"eager_ms": eager_ms(stage, device, options.rounds)}
        if device.type == "cuda":
            measured[name]["captured_ms"] = captured_ms(stage, options.rounds)
    timms = timms_ms(images, side, settings)
    columns = list(measured["everything"])
    rows = [(name, *(f"{times[column]:.3f}" for column in columns)) for name, times in measured.items()]
    print(table((f"{options.batch} × {side} px", *columns), rows, right=tuple(range(1, len(columns) + 1))))
    print(
        f"timm, one core: {timms:.3f} ms for one view of an image, {timms * options.batch:.0f} ms for {options.batch}"
    )
    if options.out:
        setting = {"batch": options.batch, "size": side, "device": device.type, **settings}
        result = describe(0) | setting | {"stages": measured, "timm_ms_an_image": timms}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
