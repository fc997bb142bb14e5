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
    model: nn.Module, x: Tensor, methods: Sequence[str], options: dict[str, dict[str, object]]
) -> dict[str, dict[str, Any]]:
    """By method: areas under deletion and insertion by all scores, mean and standard error over the images. On a GPU products
    of matrices are in TF32, as torch's convolutions are anyway: RISE asks a network for a million outputs."""
    with own_precision("high", x.device), large_passes(x.device):
        evaluations = measure.evaluate(model, x, methods, steps=DELETION_STEPS, options=options)
    return {name: {"seconds": round(e.seconds, 2)} | mean_areas(e.scores) for name, e in evaluations.items()}


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


Mean = tuple[float, float]
"""With its standard error."""


def over_seeds(seeds: list[Result], method: str, area: str) -> Mean | None:
    """Mean of the seeds' means; None if no seed has one."""
    return _mean_of([c for c in (r.metrics["methods"][method][area] for r in seeds) if c[0] is not None])


def _mean_of(means: Sequence[Mean]) -> Mean | None:
    if not means:
        return None
    return statistics.mean(m[0] for m in means), sum(m[1] ** 2 for m in means) ** 0.5 / len(means)


def difference(before: Mean | None, after: Mean | None) -> Mean | None:
    """Of two means over different images."""
    if before is None or after is None:
        return None
    return after[0] - before[0], (before[1] ** 2 + after[1] ** 2) ** 0.5


def verdict(change: Mean | None, *, lower_is_better: bool) -> str:
    """Of a difference: "=" if it is two standard errors or less, "–" if there is none."""
    if change is None:
        return "–"
    if abs(change[0]) <= 2 * change[1]:
        return "="
    return "better" if (change[0] < 0) == lower_is_better else "worse"
