"""Quantus as an independent judge of the saliency maps.

    python tests/oracles/quantus_metrics.py [--out FILE.json] [--images 8]

Trains LeNet on the built-in digits with SGD and with Bort-S (recipes mnist5k-lenet-…, seconds to a minute) and explains test
images of both with the six methods of `bort.explain`.

Agreement: `bort.measure.deletion_insertion` must give the curves that Quantus computes of the same maps, to rounding, in
three ways: Pixel-Flipping (deletion), Pixel-Flipping that starts from an empty image (insertion), and Region Perturbation
(deletion by patches of 4 × 4).

Judgement: Sparseness, Max-Sensitivity, Random Logit and MPRT of each method, which have no counterpart here. The only thing
asked of them is that a map computed twice is the same.

Needs ``pip install quantus``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bort import explain, measure, train
from bort._environment import describe
from bort._table import table

if not hasattr(np, "trapz"):
    vars(np)["trapz"] = np.trapezoid  # Quantus 0.6 calls it by the name that NumPy 2.4 took away
import quantus

RESULT = Path(__file__).parent / "results" / "quantus_metrics.json"
METHODS = ("sat", "cam", "ig", "guided-ig", "rise", "xrai")
# Fewer than by default: each metric explains every image up to ten times, and compares maps of the same settings.
OPTIONS = {"ig": {"steps": 50}, "guided-ig": {"steps": 20}, "xrai": {"steps": 10}}
STEPS = 28
PATCH = 4
TOLERANCE = 1e-5
"""Between the curves: probabilities in float32."""
QUIET = {"disable_warnings": True, "display_progressbar": False}


def explainer(method: str) -> Callable[..., np.ndarray]:
    """A method of ours as Quantus calls them."""

    def explained(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> np.ndarray:
        x, target = torch.as_tensor(inputs).float(), torch.as_tensor(targets).long()
        return explain.get(method)(model, x, target, **OPTIONS.get(method, {}))[:, None].numpy()

    return explained


def without_ties(maps: Tensor) -> Tensor:
    """The order of the pixels that a map gives, as a map. Quantus breaks ties at random, and SAT and XRAI have many."""
    order = maps.flatten(1).argsort(dim=1, descending=True, stable=True)
    return -order.argsort(dim=1).view(maps.shape).float()


def by_patches(maps: Tensor) -> Tensor:
    """(N, H, W): for each pixel how early its patch comes."""
    sums = nn.functional.avg_pool2d(maps[:, None].double(), PATCH)[:, 0]
    return without_ties(sums).repeat_interleave(PATCH, dim=1).repeat_interleave(PATCH, dim=2)


def deletion_by_quantus(model: nn.Module, x: Tensor, maps: Tensor, target: Tensor) -> Tensor:
    """(N, steps): after each step, without the clean image."""
    metric = quantus.PixelFlipping(
        features_in_step=x[0].numel() // STEPS, perturb_baseline=0.0, normalise=False, **QUIET
    )
    return torch.tensor(metric(model, x.numpy(), target.numpy(), maps[:, None].numpy(), softmax=True))


def insertion_by_quantus(model: nn.Module, x: Tensor, maps: Tensor, target: Tensor) -> Tensor:
    """Pixel-Flipping of empty images whose pixels are replaced by those of the clean ones."""
    clean = x.flatten(1).numpy()

    def insert(arr: np.ndarray, indices: np.ndarray, **_: Any) -> np.ndarray:
        arr = arr.copy()
        np.put_along_axis(arr, indices, np.take_along_axis(clean, indices, axis=1), axis=1)
        return arr

    metric = quantus.PixelFlipping(
        features_in_step=x[0].numel() // STEPS, perturb_func=insert, normalise=False, **QUIET
    )
    empty = np.zeros_like(x.numpy())
    return torch.tensor(metric(model, empty, target.numpy(), maps[:, None].numpy(), softmax=True))


def regions_by_quantus(model: nn.Module, x: Tensor, maps: Tensor, target: Tensor) -> Tensor:
    """(N, patches): by how much the probability has fallen."""
    patches = x[0].numel() // PATCH**2
    metric = quantus.RegionPerturbation(
        patch_size=PATCH, regions_evaluation=patches, perturb_baseline=0.0, normalise=False, **QUIET
    )
    return torch.tensor(np.array(metric(model, x.numpy(), target.numpy(), maps[:, None].numpy(), softmax=True)))


def differences(model: nn.Module, x: Tensor, maps: Tensor, target: Tensor) -> dict[str, float]:
    """The largest distance between a curve of ours and one of Quantus'."""
    ordered, patched = without_ties(maps), by_patches(maps)
    ours = measure.deletion_insertion(model, x, ordered, target, steps=STEPS, score="probability")
    regions = measure.deletion_insertion(
        model, x, patched, target, steps=x[0].numel() // PATCH**2, score="probability"
    ).deletion_curves
    pairs = {
        "deletion": (ours.deletion_curves[:, 1:], deletion_by_quantus(model, x, ordered, target)),
        "insertion": (ours.insertion_curves[:, 1:], insertion_by_quantus(model, x, ordered, target)),
        "regions": (regions[:, :1] - regions[:, 1:], regions_by_quantus(model, x, patched, target)),
    }
    return {name: (mine - theirs).abs().max().item() for name, (mine, theirs) in pairs.items()}


def judgements(model: nn.Module, x: Tensor, maps: Tensor, target: Tensor, method: str) -> dict[str, Any]:
    """Mean scores over the images."""
    np.random.seed(0)  # noqa: NPY002 the generator that Quantus draws from
    given = {"x_batch": x.numpy(), "y_batch": target.numpy(), "a_batch": maps[:, None].numpy()}
    again = given | {"explain_func": explainer(method)}
    randomised = quantus.MPRT(**QUIET)(model, **again)
    layers = {layer: float(np.nanmean(scores)) for layer, scores in randomised.items()}
    return {
        "sparseness": _mean(quantus.Sparseness(**QUIET)(model, **given)),
        "max_sensitivity": _mean(quantus.MaxSensitivity(nr_samples=10, lower_bound=0.2, **QUIET)(model, **again)),
        "random_logit": _mean(quantus.RandomLogit(num_classes=10, **QUIET)(model, **again)),
        "same_again": layers.pop("original"),
        "mprt": layers,
    }


def _mean(scores: Any) -> float:
    return float(np.nanmean(np.asarray(scores, dtype=float)))


def judged(recipe: str, images: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = train.fit(recipe, folder)
        x, _ = run.examples(images)
    target = run.model(x).argmax(dim=1)
    methods = {}
    for method in METHODS:
        maps = torch.as_tensor(explainer(method)(run.model, x, target))[:, 0]
        scores = judgements(run.model, x, maps, target, method)
        methods[method] = {"differences": differences(run.model, x, maps, target)} | scores
    return {"accuracy": run.accuracy, "methods": methods}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--images", type=int, default=8)
    arguments = parser.parse_args()
    results = {recipe: judged(recipe, arguments.images) for recipe in ("mnist5k-lenet-sgd", "mnist5k-lenet-bort-s")}
    for recipe, result in results.items():
        rows = [
            (
                method,
                *(f"{value:.0e}" for value in m["differences"].values()),
                *(f"{m[key]:.3f}" for key in ("sparseness", "max_sensitivity", "random_logit")),
                f"{list(m['mprt'].values())[-1]:.3f}",
            )
            for method, m in result["methods"].items()
        ]
        print(f"{recipe}, accuracy {result['accuracy']:.2f}")
        head = ("method", "deletion", "insertion", "regions", "sparseness", "max-sensitivity", "random logit", "MPRT")
        print(table(head, rows, right=range(1, 8)), "\n")
    facts = {
        "command": shlex.join(["python", *sys.argv]),
        "images": arguments.images,
        "quantus": importlib.metadata.version("quantus"),
        "tolerance": TOLERANCE,
        "results": results,
    }
    arguments.out.write_text(json.dumps(describe(0) | facts, indent=1) + "\n")
    methods = [(recipe, name, m) for recipe, r in results.items() for name, m in r["methods"].items()]
    wrong = [
        f"{recipe}, {name}: curves {m['differences']}, the same map again {m['same_again']}"
        for recipe, name, m in methods
        if max(m["differences"].values()) > TOLERANCE or m["same_again"] < 1 - TOLERANCE
    ]
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
