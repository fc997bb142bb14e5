"""Areas under deletion and insertion, as tables compare them."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from bort import explain, measure
from bort._precision import own_precision
from bort.reproduce._result import Result

METHODS: Final = ("cam", "guided-ig", "ig", "rise", "sat", "xrai")
"""The paper's six, whatever other packages register."""
DELETION_STEPS: Final = 28


def options_for(images: int, masks: int) -> dict[str, dict[str, object]]:
    """Of the methods; XRAI's segments are made by several processes where there are many images."""
    workers = max(0, (os.cpu_count() or 1) - 2) if images > 50 else 0
    return {"rise": {"masks": masks}, "xrai": {"workers": workers}}


def areas_of(
    model: nn.Module,
    x: Tensor,
    methods: Sequence[str],
    options: dict[str, dict[str, object]],
    *,
    by_image: bool = False,
) -> dict[str, dict[str, Any]]:
    """By method: areas under deletion and insertion by all scores, mean and standard error over the images, and if asked for
    the area of each image. On a GPU products of matrices are in TF32, as torch's convolutions are anyway: RISE asks a
    network for a million outputs."""
    with own_precision("high", x.device), large_passes(x.device):
        evaluations = measure.evaluate(model, x, methods, steps=DELETION_STEPS, options=options)
    return {
        name: {"seconds": round(e.seconds, 2)}
        | mean_areas(e.scores)
        | ({"by_image": _areas_by_image(e.scores)} if by_image else {})
        for name, e in evaluations.items()
    }


@contextmanager
def large_passes(device: torch.device) -> Iterator[None]:
    """On a GPU: passes as large as its free memory allows. With the usual ones, which fit any GPU, a large one waits for its
    host."""
    if device.type != "cuda":
        yield
        return
    numbers = torch.cuda.mem_get_info(device)[0] // 4
    with explain.memory_budget(forward=numbers // 64, backward=numbers // 64, kept=numbers // 8):
        yield


def mean_areas(scores: Mapping[measure.Score, measure.DeletionInsertion]) -> dict[str, Any]:
    """ "probability deletion" and the like: mean and standard error over the images; None if not one has a relative score."""
    areas: dict[str, Any] = {}
    for score, curves in scores.items():
        for end in ("deletion", "insertion"):
            values = getattr(curves, end).double()
            values = values[~values.isnan()]  # images without a relative score do not count
            error = values.std().item() / len(values) ** 0.5 if len(values) > 1 else 0.0
            areas[f"{score} {end}"] = [round(values.mean().item(), 5), round(error, 5)] if len(values) else [None, None]
    return areas


def _areas_by_image(scores: Mapping[measure.Score, measure.DeletionInsertion]) -> dict[str, str]:
    """Four digits each, in one line of the file: a list would have a line for each number."""
    return {
        f"{score} {end}": " ".join(f"{value:.4g}" for value in getattr(curves, end).tolist())
        for score, curves in scores.items()
        for end in ("deletion", "insertion")
    }


Mean = tuple[float, float]
"""With its standard error."""


def over_seeds(seeds: Sequence[Result], method: str, area: str) -> Mean | None:
    """Mean of the seeds' means; None if no seed has one."""
    cells = [c for c in (result.metrics["methods"][method][area] for result in seeds) if c[0] is not None]
    return (statistics.mean(c[0] for c in cells), sum(c[1] ** 2 for c in cells) ** 0.5 / len(cells)) if cells else None


def difference(before: Sequence[Result], after: Sequence[Result], method: str, area: str) -> Mean | None:
    """What the second networks have more, paired by image over the seeds that both have; as of different images where
    `why_unpaired` has a reason."""
    if not why_unpaired(before, after):
        pairs = _of_same_seeds(before, after)
        changes = torch.stack([_by_image(b, method, area) - _by_image(a, method, area) for a, b in pairs]).nanmean(
            dim=0
        )
        changes = changes[~changes.isnan()]
        error = changes.std().item() / len(changes) ** 0.5 if len(changes) > 1 else 0.0
        return (changes.mean().item(), error) if len(changes) else None
    first, second = over_seeds(before, method, area), over_seeds(after, method, area)
    return first and second and (second[0] - first[0], (first[1] ** 2 + second[1] ** 2) ** 0.5)


def why_unpaired(before: Sequence[Result], after: Sequence[Result]) -> str:
    """Why areas cannot be compared image by image; "" if they can."""
    results = [result for pair in _of_same_seeds(before, after) for result in pair]
    if not results:
        return "no seed was measured with both networks"
    if not all(methods.keys() >= {"by_image"} for r in results for methods in r.metrics["methods"].values()):
        return "the areas of single images are not kept"  # by earlier versions
    if len({result.metrics["images"] for result in results}) > 1:
        return "not all seeds have the same number of images"
    return ""


def _of_same_seeds(before: Sequence[Result], after: Sequence[Result]) -> list[tuple[Result, Result]]:
    first, second = ({result.seed: result for result in results} for results in (before, after))
    return [(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys())]


def _by_image(result: Result, method: str, area: str) -> Tensor:
    values = result.metrics["methods"][method]["by_image"][area].split()
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


def verdict(change: Mean | None, *, lower_is_better: bool) -> str:
    """Of a difference: "=" if it is two standard errors or less, "–" if there is none."""
    if change is None:
        return "–"
    if abs(change[0]) <= 2 * change[1]:
        return "="
    return "better" if (change[0] < 0) == lower_is_better else "worse"
