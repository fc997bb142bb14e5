"""Which layer it was: a step that was not finite, done again and looked at closely. The weights are those from before it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bort.train._feed import Batch
from bort.train._step import LARGEST_NORM, Step, whole_norm


class NotFinite(ArithmeticError):
    """NaN or Inf in the loss, a gradient or the penalty. The update was not made."""


def diagnose(step: Step, batch: Batch, number: int, epoch: int) -> NotFinite:
    """The error to raise, with the layer's name in it."""
    where = f"step {number} (epoch {epoch})"
    bare = bare_network(step.model)
    advice = "The weights are as they were before it. A smaller optim.lr, a warm-up or optim.clip may help."
    for name, p in bare.named_parameters():
        norm = p.detach().norm().item()
        if not norm < LARGEST_NORM and any(p is q for q in step._constrained):
            return NotFinite(
                f"the penalty of {name} overflows at {where}: the norm of the weight is {norm:g}. {advice}"
            )
        if norm != norm or norm == float("inf"):
            return not_finite_weight(name, where)
    found: list[str] = []
    hooks = [
        module.register_forward_hook(_look(name, found))
        for name, module in bare.named_modules()
        if not list(module.children())
    ]
    try:
        step.optimizer.zero_grad()
        loss = step.forward(batch, bare)
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return NotFinite(f"the loss is {loss.item():g} at {where}: the output of {found[0]} is not finite. {advice}")
    if not loss.isfinite():
        return NotFinite(f"the loss is {loss.item():g} at {where}, though every layer's output is finite. {advice}")
    loss.backward()  # type: ignore[no-untyped-call]
    # The backward pass goes from the last layer to the first: the last bad one is where it began.
    bad = [name for name, p in bare.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    if bad:
        return NotFinite(f"the gradient of {bad[-1]} is not finite at {where}; the loss is {loss.item():g}. {advice}")
    total = nn.utils.get_total_norm([p.grad for p in bare.parameters() if p.grad is not None])
    return NotFinite(
        f"the loss or a gradient was not finite at {where}; done again, both are (loss {loss.item():g}, norm {total:g}). "
        f"{advice}"
    )


def check_weights(net: nn.Module, where: str) -> None:
    """Refuse to go on, or to save, with a weight that is not finite."""
    weights = [p.detach() for p in net.parameters() if p.is_floating_point()]
    if not whole_norm(nn.utils.get_total_norm(weights, foreach=True)).isfinite():
        raise not_finite_weight(
            next((n for n, p in net.named_parameters() if not p.isfinite().all()), "of a layer"), where
        )


def not_finite_weight(name: str, where: str) -> NotFinite:
    return NotFinite(
        f"the weight {name} is not finite after {where}. Look at optim.lr, and go on from an earlier checkpoint."
    )


def bare_network(model: nn.Module) -> nn.Module:
    """Without the wrappers of DDP and torch.compile: its names are the recipe's, and it waits for no other process."""
    while isinstance(inner := getattr(model, "module", getattr(model, "_orig_mod", None)), nn.Module):
        model = inner
    return model


def _look(name: str, found: list[str]) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point() and not torch.isfinite(output).all():
            found.append(name)

    return hook
