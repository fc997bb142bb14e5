"""What several tables measure of a finished run."""

from __future__ import annotations

import statistics
from typing import Any, Final

import torch

from bort import measure, penalty, train
from bort.layers import linear_maps
from bort.reproduce._table import Trained

_DEAD_BELOW: Final = 0.01
"""A class is dead if its logit is the only largest one for less than this part of its images."""


def training(trained: Trained) -> dict[str, Any]:
    """The last record of the run's history."""
    last = trained.run.history[-1]
    names = ("accuracy", "top5", "loss", "residual", "sigma", "seconds", "skipped")
    return {name: last[name] for name in names if name in last}


def more_than_accuracy(trained: Trained) -> dict[str, Any]:
    """The same, the median residual, calibration on 5,000 images and accuracy under corruptions and attacks on 1,000."""
    model, scale = trained.model, trained.run.recipe.optim.scale
    images, labels = trained.examples(5000)
    with torch.no_grad():
        logits = torch.cat([model(batch) for batch in torch.split(images, 1000)])
    residuals = [
        penalty.residual(weight, scale=scale, blocks=linear.blocks, transposed=linear.transposed).item()
        for _, weight, _, linear in linear_maps(model)
    ]
    corrupted = measure.robustness(model, *trained.examples(1000), trained.run.view(trained.data_root))
    return training(trained) | {
        "pull": trained.run.history[-1].get("pull", 0.0),
        "median_residual": statistics.median(residuals),
        "calibration_error": round(measure.calibration(logits, labels).error, 5),
        "corruptions": {kind: round(accuracy, 5) for kind, accuracy in corrupted.items()},
    }


def classes(trained: Trained) -> dict[str, Any]:
    """The same, and the number of dead classes, for a network with a ReLU behind its last layer.

    Where all logits are 0 argmax names an arbitrary class, so accuracy is measured here with ties shared between the classes.
    """
    images, labels = trained.examples(10_000)
    model = trained.model
    with torch.no_grad():
        logits = torch.cat([model(batch) for batch in torch.split(images, 1000)])
    top1, top5 = (train.recognised(logits, labels, k) for k in (1, 5))
    alone = {label: (top1[labels == label] == 1).double().mean().item() for label in set(labels.tolist())}
    return training(trained) | {
        "accuracy": top1.mean().item(),
        "top5": top5.mean().item(),
        "dead_classes": sum(part < _DEAD_BELOW for part in alone.values()),
        "images": len(images),
    }
