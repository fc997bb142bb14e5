"""The optimizer, the rate and the loss that a recipe asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from bort.optim import BortA, BortL, BortS, Lamb, constraint_for, param_groups, scheduled_rate
from bort.train._schema import Optim, Recipe

Loss = Callable[[Tensor, Tensor], Tensor]


def optimizer_for(optim: Optim, model: nn.Module, device: torch.device, *, captured: bool = False) -> Optimizer:
    """The recipe's optimizer for a model that is on its device already, and sharded already if it is to be. If its steps are
    to be captured in CUDA graphs, the rate is a tensor on the device: graphs read it there."""
    is_bort = optim.name.startswith("bort")
    options: dict[str, Any] = {"lr": optim.lr, "weight_decay": optim.weight_decay}
    if captured:
        options["lr"] = torch.tensor(optim.lr, device=device)
    if optim.name in ("sgd", "bort-s"):
        options["momentum"] = optim.momentum
    if optim.name in ("lamb", "bort-l"):
        options["capturable"] = device.type == "cuda"  # also otherwise: then a bad step is skipped on the device
    else:
        options["fused"] = device.type == "cuda"
    if optim.name in ("adamw", "bort-a"):
        options["capturable"] = captured
    if is_bort:
        options |= {"constraint": optim.constraint, "every": optim.every, "scale": optim.scale}
    params: Any = list(model.named_parameters())
    if optim.groups == "modules":
        # The classifier is not constrained: by timm's name for it, or "head". bort.param_groups itself finds more names, but
        # a run of an earlier version has to go on with the groups that it began with.
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
    return scheduled_rate(step, **_schedule(recipe, per_epoch))


def _schedule(recipe: Recipe, per_epoch: int) -> dict[str, Any]:
    optim = recipe.optim
    return {
        "lr": optim.lr,
        "steps": recipe.epochs * per_epoch,
        "schedule": optim.schedule,
        "warmup": optim.warmup_epochs * per_epoch,
    }


def with_constraint(recipe: Recipe, per_epoch: int) -> Optim:
    """The recipe's settings with λ in place of a pull."""
    optim = recipe.optim
    if not optim.pull:
        return optim
    constraint = constraint_for(optim.pull, momentum=optim.momentum, **_schedule(recipe, per_epoch))
    return replace(optim, constraint=constraint, pull=0.0)


def pull(recipe: Recipe, steps: int, per_epoch: int) -> float:
    """λ · Σ lr / (1 − momentum) over the first steps of the training."""
    constraint = with_constraint(recipe, per_epoch).constraint
    if not constraint:
        return 0.0
    rates = math.fsum(rate(recipe, step, per_epoch) for step in range(steps))
    return constraint * rates / (1 - recipe.optim.momentum)


def set_rate(optimizer: Optimizer, recipe: Recipe, step: int, per_epoch: int) -> None:
    """Give all groups the rate of a step."""
    if recipe.optim.schedule == "constant" and not recipe.optim.warmup_epochs:
        return
    value = rate(recipe, step, per_epoch)
    tensors = {id(group["lr"]): group["lr"] for group in optimizer.param_groups if isinstance(group["lr"], Tensor)}
    for tensor in tensors.values():  # one, which the groups share
        tensor.fill_(value)
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor):
            group["lr"] = value


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
