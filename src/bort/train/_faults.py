"""Which layer it was: a step that was not finite, done again and looked at closely. The weights are those from before it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bort.train._feed import Batch
from bort.train._step import LARGEST_NORM, Step


class NotFinite(ArithmeticError):
    """NaN or Inf in the loss, a gradient or the penalty. The update was not made."""


def diagnose(step: Step, batch: Batch, number: int, epoch: int) -> NotFinite:
    """The error to raise, with the layer's name in it."""
    where = f"step {number} (epoch {epoch})"
    advice = "The weights are as they were before it. A smaller optim.lr, a warm-up or optim.clip may help."
    for name, p in step.model.named_parameters():
        norm = p.detach().norm().item()
        if not norm < LARGEST_NORM and any(p is q for q in step._constrained):
            return NotFinite(
                f"the penalty of {name} overflows at {where}: the norm of the weight is {norm:g}. {advice}"
            )
        if norm != norm or norm == float("inf"):
            return NotFinite(f"the weight {name} is not finite at {where}, from before it. {advice}")
    found: list[str] = []
    hooks = [
        module.register_forward_hook(_look(name, found))
        for name, module in step.model.named_modules()
        if not list(module.children())
    ]
    try:
        step.optimizer.zero_grad()
        loss = step.forward(batch)
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return NotFinite(f"the loss is {loss.item():g} at {where}: the output of {found[0]} is not finite. {advice}")
    if not loss.isfinite():
        return NotFinite(f"the loss is {loss.item():g} at {where}, though every layer's output is finite. {advice}")
    loss.backward()  # type: ignore[no-untyped-call]
    # The backward pass goes from the last layer to the first: the last bad one is where it began.
    bad = [name for name, p in step.model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    if bad:
        return NotFinite(f"the gradient of {bad[-1]} is not finite at {where}; the loss is {loss.item():g}. {advice}")
    total = nn.utils.get_total_norm([p.grad for p in step.model.parameters() if p.grad is not None])
    return NotFinite(
        f"the loss or a gradient was not finite at {where}; done again, both are (loss {loss.item():g}, norm {total:g}). "
        f"{advice}"
    )


def _look(name: str, found: list[str]) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point() and not torch.isfinite(output).all():
            found.append(name)

    return hook
