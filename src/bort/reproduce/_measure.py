"""What is measured of a finished run for each table."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import torch

from bort import explain, invert, measure
from bort.explain._common import top_layer
from bort.invert._similar import correlation
from bort.measure._deletion import SCORES
from bort.reproduce._trained import Trained
from bort.train._evaluate import recognised
from bort.train._examples import examples


def training(trained: Trained) -> dict[str, Any]:
    """What the history says at its end."""
    last = trained.run.history[-1]
    known = ("accuracy", "top5", "loss", "residual", "sigma", "seconds", "skipped")
    return {name: last[name] for name in known if name in last}


def classes(trained: Trained) -> dict[str, Any]:
    """The same, and how many classes are dead behind a last ReLU: for hardly any of their images is their logit the largest,
    and alone. Where all logits are 0, any class may be named; so accuracy is measured here, with ties shared out."""
    run, device = trained.run, trained.device
    x, labels = (t.to(device) for t in examples(run.recipe, 10_000, trained.data_root))
    with torch.no_grad():
        logits = torch.cat([run.model.to(device)(some) for some in torch.split(x, 1000)])
    first, fifth = (recognised(logits, labels, k) for k in (1, 5))
    dead = sum((first[labels == c] == 1).double().mean().item() < _HARDLY_ANY for c in set(labels.tolist()))
    found = {"accuracy": first.mean().item(), "top5": fifth.mean().item(), "dead_classes": dead, "images": len(x)}
    return training(trained) | found


_HARDLY_ANY = 0.01

_LAYERS = {"acnn-base": "conv8"}
"""Section 4.2.2: visualizations are of the 5th layer of ACNN-Small, which is its top, and of the 8th of ACNN-Base."""


def _saliency(trained: Trained, *, images: int, masks: int) -> dict[str, Any]:
    """Areas under deletion and insertion by all scores: mean and standard error over the images."""
    run, device = trained.run, trained.device
    x = examples(run.recipe, images, trained.data_root)[0].to(device)
    workers = max(0, (os.cpu_count() or 1) - 2) if images > 50 else 0
    options: dict[str, dict[str, object]] = {"rise": {"masks": masks}, "xrai": {"workers": workers}}
    if run.recipe.net.name in _LAYERS:
        options["sat"] = {"layer": _LAYERS[run.recipe.net.name]}
    found = {}
    for name, each in measure.evaluate(run.model.to(device), x, explain.names(), options=options).items():
        areas: dict[str, Any] = {"seconds": round(each.seconds, 2)}
        for score in SCORES:
            for end in ("deletion", "insertion"):
                values = getattr(each.scores[score], end).double()
                error = values.std().item() / len(values) ** 0.5 if len(values) > 1 else 0.0
                areas[f"{score} {end}"] = [round(values.mean().item(), 5), round(error, 5)]
        found[name] = areas
    return training(trained) | {"methods": found, "images": len(x), "masks": masks}


saliency = partial(_saliency, images=1000, masks=1000)
saliency_quick = partial(_saliency, images=8, masks=50)


def _inside(trained: Trained, *, images: int, pairs: int) -> dict[str, Any]:
    """Ratios and σ of each layer, correlations of reconstructions, and adversaries: success against similarity."""
    model, device = trained.run.model.to(trained.device), trained.device
    x, labels = (t.to(device) for t in examples(trained.run.recipe, images, trained.data_root))
    audit = measure.audit(model, x[: min(images, 256)])
    layers = [
        {
            "name": layer.name,
            "shape": layer.shape,
            "sigma": layer.sigma,
            "gram_diagonal": layer.gram_diagonal,
            "gram_off_diagonal": layer.gram_off_diagonal,
            "ratio": layer.ratio,
            "floor": layer.floor,
            "cosine": layer.cosine,
            "claim": layer.claim,
        }
        for layer in audit
    ]
    top = top_layer(model, x)
    channels = invert.Backtracker(model, top, "gradient").features(x[:1]).shape[1]
    kept = {
        str(k or "all"): round(correlation(invert.reconstruct(model, x, top, k), x).double().mean().item(), 4)
        for k in (None, 64, 4)
        if not k or k <= channels
    }
    found = training(trained) | {"layers": layers, "reconstruction": kept, "images": len(x)}
    return found | {"adversaries": _adversaries(model, x, labels, top, channels, pairs)}


def _adversaries(
    model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor, top: str, channels: int, pairs: int
) -> list[dict[str, Any]]:
    """The trade-off: for each path and k, how many fool the classifier, and how much they look like their source."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(len(x), (4 * pairs,), generator=generator)
    target = torch.randint(len(x), (4 * pairs,), generator=generator)
    different = (labels[source] != labels[target]).nonzero()[:pairs, 0].cpu()
    source, target = source[different], target[different]
    found = []
    for path in ("source", "none", "target"):
        for k in (1, 4, 16, 64, 256):
            if k > channels:
                continue
            made = invert.synthesize(model, x[source], x[target], top, k, path=path)
            found.append(
                {
                    "path": path,
                    "k": k,
                    "pairs": len(source),
                    "told_apart": made.pairs,
                    "map_success": round(made.map_success, 4),
                    "image_success": round(made.image_success, 4),
                    "like_source": round(made.source_similarity.mean().item(), 4),
                    "like_target": round(made.target_similarity.mean().item(), 4),
                }
            )
    return found


inside = partial(_inside, images=1000, pairs=1000)
inside_quick = partial(_inside, images=20, pairs=20)
