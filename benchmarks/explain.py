"""Our explanations beside published implementations: on the same machine, in the same run, with the same result.

    python benchmarks/explain.py [--parts xrai guided-ig sat rise deletion] [--repeats 3] --out FILE.json

xrai, guided-ig: ResNet-18 at 224², beside PAIR's `saliency` (patched for NumPy 2), which takes one image at a time.
sat: k = 64, beside algorithm 1 as the paper writes it, one channel at a time; ResNet-18 at 224² and ACNN-Small of CIFAR-10.
rise: memory beyond model and image for 4,000 masks of 224².
deletion: deletion and insertion of 224 steps, beside a loop over single images as RISE's authors publish it.
A part is left out, with a message, if a package that it needs is not installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bort import explain, invert, measure, nets
from bort._defaults import SALIENT_CHANNELS, SAT_THRESHOLD
from bort._environment import describe
from bort._table import table

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TARGETS = {"xrai, one image": 4, "guided-ig, batch of 8": 4, "sat": 10, "deletion and insertion": 5}


def pictures(count: int, size: int = 224) -> Tensor:
    """Smooth blobs in colour with a little noise, so that there is something to segment."""
    generator = torch.Generator().manual_seed(0)
    coarse = F.interpolate(torch.randn(count, 3, 7, 7, generator=generator), (size, size), mode="bicubic")
    fine = F.interpolate(torch.randn(count, 3, 28, 28, generator=generator), (size, size), mode="bicubic")
    return (coarse + 0.5 * fine + 0.05 * torch.randn(count, 3, size, size, generator=generator)).to(DEVICE)


def resnet18() -> nn.Module:
    torch.manual_seed(0)
    return nets.create("timm/resnet18", classes=1000, image_size=224).to(DEVICE).eval()


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Seconds, the median of ``repeats`` calls after a first one that is not counted; and the result."""
    times, result = [], None
    for _ in range(repeats + 1):
        _wait()
        start = time.perf_counter()
        result = call()
        _wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]), result


def xrai(repeats: int) -> list[dict[str, Any]]:
    """Segments, widening and growth, the attributions given; and the whole method with Integrated Gradients of 100 steps."""
    from saliency.core import xrai as pair

    image = _photograph()
    model = resnet18()
    pixels = image[0].permute(1, 2, 0).cpu().numpy()
    values = explain.integrated_gradients(model, image, steps=20, by_colour=True).amax(dim=1)
    base = values[0].cpu().double().numpy()[..., None].repeat(3, axis=2)
    ours, mine = timed(lambda: explain.xrai(model, image, attributions=values), repeats)
    theirs, yours = timed(lambda: pair.XRAI().GetMask(pixels, None, base_attribution=base), repeats)
    whole, _ = timed(lambda: explain.xrai(model, image), 1)
    return [
        {
            "what": "xrai, one image",
            "ours_s": ours,
            "theirs_s": theirs,
            "difference": _difference(mine[0], torch.from_numpy(yours)),
            "with_integrated_gradients_s": whole,
        }
    ]


def _photograph() -> Tensor:
    """One that comes with scikit-image: 360 segments."""
    from skimage import data, transform

    pixels = torch.from_numpy(transform.resize(data.astronaut(), (224, 224), anti_aliasing=True)).permute(2, 0, 1)
    return ((pixels[None] - 0.45) / 0.22).float().to(DEVICE)


def guided_ig(_: int) -> list[dict[str, Any]]:
    """As published, with 50 steps instead of 200. The network is in float32, the path on both sides in float64."""
    import numpy as np
    from saliency.core import guided_ig as pair

    model, images = resnet18(), pictures(8)
    classes = model(images).argmax(dim=1).tolist()
    real = np.quantile

    def slopes(target: int) -> Callable[[Any], Any]:
        def of(x: Any) -> Any:
            leaf = torch.from_numpy(x).float()[None].to(DEVICE).requires_grad_()
            return torch.autograd.grad(model(leaf)[0, target], leaf)[0][0].double().cpu().numpy()

        return of

    def gradients() -> Tensor:
        leaf = images.detach().requires_grad_()
        logits = model(leaf).gather(1, torch.tensor(classes, device=DEVICE)[:, None])
        return torch.autograd.grad(logits.sum(), leaf)[0].flatten(1).double()

    def theirs_all() -> Any:
        arrays = images.double().cpu().numpy()
        attributions = [
            pair.guided_ig_impl(image, np.zeros_like(image), slopes(target), 50, 0.25, 0.02)
            for image, target in zip(arrays, classes, strict=True)
        ]
        return np.stack(attributions).sum(axis=1)

    renamed = mock.patch.object(
        pair.np, "quantile", lambda values, part, interpolation: real(values, part, method=interpolation)
    )
    ours, mine = timed(lambda: explain.guided_ig(model, images, steps=50), 1)
    with renamed:
        theirs, yours = timed(theirs_all, 1)
    together, _ = timed(gradients, 3)
    single, _ = timed(lambda: slopes(classes[0])(images[0].double().cpu().numpy()), 3)
    return [
        {
            "what": "guided-ig, batch of 8",
            "ours_s": ours,
            "theirs_s": theirs,
            "difference": _difference(mine, torch.from_numpy(yours)),
            "ours_in_the_network_s": 50 * together,
            "theirs_in_the_network_s": 8 * 50 * single,
        }
    ]


def sat(repeats: int) -> list[dict[str, Any]]:
    """One image: all 64 channels in one backward pass, or one after the other with a forward pass for each g."""
    torch.manual_seed(0)
    small = nets.create("acnn-small", channels=3, classes=10, image_size=32).to(DEVICE).eval()
    rows = []
    for name, model, layer, size in (
        ("resnet18 at 224²", resnet18(), "layer4", 224),
        ("acnn-small", small, "conv5", 32),
    ):
        image = pictures(1, size)
        ours, mine = timed(lambda m=model, i=image, n=layer: explain.sat(m, i, layer=n), repeats)
        theirs, yours = timed(lambda m=model, i=image, n=layer: algorithm_1(m, i, n), repeats)
        once, _ = timed(lambda m=model, i=image, n=layer: algorithm_1(m, i, n, forward_once=True), repeats)
        rows.append(
            {
                "what": f"sat, {name}",
                "ours_s": ours,
                "theirs_s": theirs,
                "forward_once_s": once,
                "difference": _difference(mine[0], yours),
            }
        )
    return rows


def algorithm_1(model: nn.Module, image: Tensor, layer: str, *, forward_once: bool = False) -> Tensor:
    """Line by line. For each channel ``g`` is a forward pass, which stores where ReLUs are open, and a backward pass."""
    g = invert.Backtracker(model, layer)
    trace = g.trace(image)
    z = trace.features[0]
    y = F.max_pool2d(z, z.shape[1:]).flatten()
    salient = y.topk(SALIENT_CHANNELS)
    result = torch.zeros(image.shape[-2:], device=image.device)
    for value, channel in zip(salient.values, salient.indices.tolist(), strict=True):
        z0 = torch.zeros_like(z)
        z0[channel].view(-1)[z[channel].argmax()] = 1
        signal = (trace(z0[None]) if forward_once else g(image, z0[None]))[0].abs().sum(dim=0)
        result += value * (signal > SAT_THRESHOLD * signal.max())
    return result


def rise(_: int) -> list[dict[str, Any]]:
    model, image = resnet18(), pictures(1)
    explain.rise(model, image, masks=64)
    if DEVICE == "cpu":
        before, peak = _resident(), 0

        def watch(done: int, total: int) -> None:
            nonlocal peak
            peak = max(peak, _high_water())

        start = time.perf_counter()
        explain.rise(model, image, progress=watch)
        seconds, extra = time.perf_counter() - start, max(0, peak - before)
    else:
        _wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        seconds, _ = timed(lambda: explain.rise(model, image), 1)
        extra = torch.cuda.max_memory_allocated() - before
    return [{"what": "rise, 4,000 masks of 224²", "ours_s": seconds, "extra_mib": extra / 2**20}]


def deletion(repeats: int) -> list[dict[str, Any]]:
    model, images = resnet18(), pictures(8)
    maps = explain.cam(model, images)
    steps = 224
    ours, mine = timed(
        lambda: measure.deletion_insertion(model, images, maps, steps=steps, score="probability"), repeats
    )
    theirs, yours = timed(lambda: [published_loop(model, i, m, steps) for i, m in zip(images, maps, strict=True)], 1)
    difference = _difference(mine.deletion_curves, torch.stack([d for d, _ in yours]))
    return [{"what": "deletion and insertion", "ours_s": ours, "theirs_s": theirs, "difference": difference}]


@torch.no_grad()
def published_loop(model: nn.Module, image: Tensor, saliency: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """One image, one pass for each step, the changed pixels copied on the host: how RISE's authors measure. Deletion ends and
    insertion starts at zeros here, so that the curves can be compared."""
    label = int(model(image[None]).argmax())
    order = saliency.flatten().cpu().argsort(descending=True, stable=True)
    per_step = len(order) // steps
    curves = []
    for start, finish in ((image, torch.zeros_like(image)), (torch.zeros_like(image), image)):
        now, end = start.cpu().clone().flatten(1), finish.cpu().flatten(1)
        scores = []
        for step in range(steps + 1):
            probabilities = model(now.view(1, *image.shape).to(image.device)).softmax(dim=1)
            scores.append(probabilities[0, label].item())
            places = order[per_step * step : per_step * (step + 1)]
            now[:, places] = end[:, places]
        curves.append(torch.tensor(scores))
    return curves[0], curves[1]


def _difference(one: Tensor, other: Tensor) -> float:
    """Largest, relative to the largest value."""
    a, b = one.detach().cpu().double(), other.detach().cpu().double()
    return ((a - b).abs().max() / b.abs().max()).item()


def _wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(name))
    return int(line.split()[1]) * 1024


def _resident() -> int:
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    return _status("VmRSS")


def _high_water() -> int:
    return _status("VmHWM")


PARTS = {"rise": rise, "xrai": xrai, "guided-ig": guided_ig, "sat": sat, "deletion": deletion}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for part in arguments.parts:
        try:
            rows += PARTS[part](arguments.repeats)
        except ImportError as error:
            print(f"{part} is left out: {error}")
            continue
        print(rows[-1], flush=True)
        facts = {"rows": rows, "command": "python benchmarks/explain.py", **describe(0)}
        arguments.out.write_text(json.dumps(facts, indent=2) + "\n")
    cells = []
    for row in rows:
        target = next((f"{t}" for name, t in TARGETS.items() if row["what"].startswith(name)), "")
        theirs = row.get("theirs_s")
        speed = f"{theirs / row['ours_s']:.1f}" if theirs else ""
        extra = f"{row['extra_mib']:.0f} MiB beyond the model" if "extra_mib" in row else f"{row['difference']:.1e}"
        cells.append((row["what"], f"{row['ours_s']:.3f}", f"{theirs:.3f}" if theirs else "", speed, target, extra))
    print(table(("what", "ours s", "theirs s", "×", "target ×", "difference"), cells, right=(1, 2, 3, 4)))


if __name__ == "__main__":
    main()
