"""What several tables measure of a finished run."""

from __future__ import annotations

from typing import Any, Final

import torch

from bort import train
from bort.reproduce._table import Trained

_DEAD_BELOW: Final = 0.01
"""A class is dead if its logit is the only largest one for less than this part of its images."""


def training(trained: Trained) -> dict[str, Any]:
    """The last record of the run's history."""
    last = trained.run.history[-1]
    names = ("accuracy", "top5", "loss", "residual", "sigma", "seconds", "skipped")
    return {name: last[name] for name in names if name in last}


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
