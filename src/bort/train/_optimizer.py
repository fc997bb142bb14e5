"""The optimizer, the rate and the loss that a recipe asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from bort.optim import BortA, BortL, BortS, Lamb, param_groups
from bort.train._schema import Optim, Recipe

Loss = Callable[[Tensor, Tensor], Tensor]


def optimizer_for(optim: Optim, model: nn.Module, device: torch.device) -> Optimizer:
    """The recipe's optimizer for a model that is on its device already, and sharded already if it is to be."""
    is_bort = optim.name.startswith("bort")
    options: dict[str, Any] = {"lr": optim.lr, "weight_decay": optim.weight_decay}
    if optim.name in ("sgd", "bort-s"):
        options["momentum"] = optim.momentum
    options["capturable" if optim.name in ("lamb", "bort-l") else "fused"] = device.type == "cuda"
    if is_bort:
        options |= {"constraint": optim.constraint, "every": optim.every, "scale": optim.scale}
    params: Any = list(model.named_parameters())
    if optim.groups == "modules":
        # The classifier is not constrained, whatever its name in timm; bort.param_groups itself knows it as "head".
        head = getattr(model, "default_cfg", {}).get("classifier", "head")
        patterns = tuple(f"{name}.*" for name in ((head,) if isinstance(head, str) else head))
        params = param_groups(model, optim.constraint, optim.weight_decay, patterns)
        if not is_bort:
            params = [{key: group[key] for key in ("params", "weight_decay")} for group in params]
    optimizer = _class(optim.name)(params, **options)
    for group in optimizer.param_groups:
        group["initial_lr"] = optim.lr  # the largest rate of a warm-up, which the stability guard has to know
    return optimizer


def _class(name: str) -> Callable[..., Optimizer]:
    classes: dict[str, Callable[..., Optimizer]] = {
        "sgd": torch.optim.SGD,
        "bort-s": BortS,
        "adamw": torch.optim.AdamW,
        "bort-a": BortA,
        "lamb": Lamb,
        "bort-l": BortL,
    }
    return classes[name]


def rate(recipe: Recipe, step: int, per_epoch: int) -> float:
    """The learning rate of a step (counted from 0): a linear warm-up, then constant, or half a cosine down to 0."""
    optim = recipe.optim
    warm, total = optim.warmup_epochs * per_epoch, recipe.epochs * per_epoch
    if step < warm:
        return optim.lr * (step + 1) / warm
    if optim.schedule == "constant":
        return optim.lr
    return optim.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))


def set_rate(optimizer: Optimizer, recipe: Recipe, step: int, per_epoch: int) -> None:
    """Give all groups the rate of a step. A constant one is left as it is: a captured step could not change it."""
    if recipe.optim.schedule != "constant" or recipe.optim.warmup_epochs:
        for group in optimizer.param_groups:
            group["lr"] = rate(recipe, step, per_epoch)


def loss_for(recipe: Recipe) -> Loss:
    """Cross-entropy, also with mixed labels; JSD or binary cross-entropy from timm."""
    if recipe.loss == "jsd":
        from timm.loss import JsdCrossEntropy

        jsd: Loss = JsdCrossEntropy(recipe.augment.splits, smoothing=recipe.smoothing)
        return jsd
    if recipe.loss == "bce":
        from timm.loss import BinaryCrossEntropy

        bce: Loss = BinaryCrossEntropy(smoothing=recipe.smoothing)
        return bce
    # timm's Mixup smooths the labels that it mixes.
    return lambda outputs, targets: F.cross_entropy(
        outputs, targets, label_smoothing=recipe.smoothing if targets.ndim == 1 else 0.0
    )
