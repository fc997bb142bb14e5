"""A step that was not finite ends the training with an error that names the layer. The weights are those from before it."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from bort.train._counters import Counters
from bort.train._feed import Batch, Feed
from bort.train._step import LARGEST_NORM, Step
from bort.train._world import full

_CHECK_STEPS = 256  # with a fused optimizer on a GPU: how often the host waits for the device to read its flag


class NotFinite(ArithmeticError):
    """NaN or Inf in the loss, a gradient or the penalty. The update was not made.

    Example:
        >>> from dataclasses import replace
        >>> recipe = train.recipes.get("mnist5k-lenet-sgd")
        >>> recipe = replace(recipe, optim=replace(recipe.optim, lr=1e30))
        >>> try:
        ...     train.fit(recipe, "runs/diverges", train.Runtime(device="cpu"))
        ... except train.NotFinite as error:
        ...     print(error)
        the weight conv1.weight is not finite after step 2 (epoch 1). Look at optim.lr, and ...
    """


class FiniteCheck:
    """Raises NotFinite if a step was not finite; `Step` has not made its update."""

    def __init__(self, step: Step, feed: Feed, counters: Counters) -> None:
        self._step, self._feed, self._counters = step, feed, counters

    def after_step(self, batch: Batch) -> None:
        """After every step, if the host reads the flag anyway; with a fused optimizer on a GPU, where reading it waits for
        the device, only now and then."""
        if self._step.host_checks:
            if self._step.bad.item():
                self._fail(self._counters.steps, batch)
        elif self._counters.steps % _CHECK_STEPS == 0:
            self.now()

    def now(self) -> None:
        """At the end of an epoch, and before a checkpoint."""
        if self._step.bad.item():
            number = self._counters.first_step + int(self._step.good.item()) + 1
            epoch, start = divmod(number - 1, self._feed.per_epoch)
            self._fail(number, next(iter(self._feed.batches(epoch, start))))

    def _fail(self, number: int, batch: Batch) -> NoReturn:
        raise diagnose(self._step, batch, number, (number - 1) // self._feed.per_epoch + 1)


def diagnose(step: Step, batch: Batch, number: int, epoch: int) -> NotFinite:
    """The error for a bad step, counted from 1: the step is repeated without an update, to see which layer it is."""
    where = f"step {number} (epoch {epoch})"
    net = unwrapped(step.model)
    advice = "The weights are as they were before it. A smaller optim.lr, a warm-up or optim.clip may help."
    for name, p in net.named_parameters():
        norm = p.detach().norm().item()
        if not norm < LARGEST_NORM and any(p is q for q in step.constrained):
            return NotFinite(
                f"the penalty of {name} overflows at {where}: the norm of the weight is {norm:g}. {advice}"
            )
        if norm != norm or norm == float("inf"):
            return not_finite_weight(name, where)
    bad_outputs: list[str] = []
    hooks = [
        module.register_forward_hook(_append_if_bad(name, bad_outputs))
        for name, module in net.named_modules()
        if not list(module.children())
    ]
    try:
        step.optimizer.zero_grad()
        loss = step.loss_of(net, *step.feed.read(batch))
    finally:
        for hook in hooks:
            hook.remove()
    if bad_outputs:
        return NotFinite(
            f"the loss is {loss.item():g} at {where}: the output of {bad_outputs[0]} is not finite. {advice}"
        )
    if not loss.isfinite():
        return NotFinite(f"the loss is {loss.item():g} at {where}, though every layer's output is finite. {advice}")
    loss.backward()  # type: ignore[no-untyped-call]
    # Backpropagation goes from the last layer to the first, so the last bad gradient is the one that it met first.
    bad = [name for name, p in net.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    if bad:
        return NotFinite(f"the gradient of {bad[-1]} is not finite at {where}; the loss is {loss.item():g}. {advice}")
    total = nn.utils.get_total_norm([p.grad for p in net.parameters() if p.grad is not None])
    return NotFinite(
        f"the loss or a gradient was not finite at {where}; done again, both are (loss {loss.item():g}, norm {total:g}). "
        f"{advice}"
    )


def check_weights(net: nn.Module, where: str) -> None:
    """Raise NotFinite for a weight that is not finite."""
    weights = [p.detach() for p in net.parameters() if p.is_floating_point()]
    if not full(nn.utils.get_total_norm(weights, foreach=True)).isfinite():
        raise not_finite_weight(
            next((n for n, p in net.named_parameters() if not p.isfinite().all()), "of a layer"), where
        )


def not_finite_weight(name: str, where: str) -> NotFinite:
    return NotFinite(
        f"the weight {name} is not finite after {where}. Look at optim.lr, and go on from an earlier checkpoint."
    )


def unwrapped(model: nn.Module) -> nn.Module:
    """Without DDP, which would wait for the other processes, and without torch.compile; names are those of the network."""
    while isinstance(inner := getattr(model, "module", getattr(model, "_orig_mod", None)), nn.Module):
        model = inner
    return model


def _append_if_bad(name: str, names: list[str]) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point() and not torch.isfinite(output).all():
            names.append(name)

    return hook
