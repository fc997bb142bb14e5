"""From a layer forward: what the rest of a model computes with other features in the place of the layer's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from bort._budget import current_budget
from bort._failures import Refused
from bort._inspect import evaluating, outputs_of
from bort.invert._front import Front
from bort.invert._grid import find_layer
from bort.invert._rules import Rules


@contextmanager
def hooked(model: nn.Module, layer: str, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, the layer's output (the first one if it has several) is replaced by ``change(output)``."""

    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        several = isinstance(output, (tuple, list)) and len(output) > 0
        first = output[0] if several else output
        if not isinstance(first, Tensor):
            raise Refused(f"the layer {layer!r} gives no tensor but {type(output).__name__}")
        return type(output)([change(first), *output[1:]]) if several else change(first)

    handle = find_layer(model, layer).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


class Rest:
    """The part of a model behind a layer, for inputs whose features and outputs are known.

    Args:
        activated: the features are those after an activation function behind the layer.
        uses: how often a pass uses the layer; features take the place of those of the last use.
        largest: numbers in the largest tensor of a pass.
    """

    def __init__(
        self,
        model: nn.Module,
        layer: str,
        x: Tensor,
        features: Tensor,
        outputs: Tensor,
        *,
        activated: bool,
        uses: int,
        largest: int,
    ) -> None:
        self._model, self._layer, self._x = model, layer, x
        self._features, self._outputs = features, outputs
        self._activated, self._uses = activated, uses
        self._numbers = max(1, largest // len(x))  # in the largest tensor of a pass, for each of the features
        self._front: Front | None = None
        self._is_tried = self._broadcasts = False

    def __call__(self, features: Tensor) -> Tensor:
        """(M, classes): the logits with these features in the place of the known ones, one for each input or any number for a
        single one.

        For a single input everything before the layer is computed once, and what goes around the layer, as in residual
        blocks, is one image that torch's broadcasting repeats. A model that does not allow it (DenseNet, which concatenates)
        gets the input repeated.
        """
        inputs = len(self._x)
        if features.shape[1:] != self._features.shape[1:] or inputs not in (1, len(features)):
            raise ValueError(
                f"features of shape {tuple(features.shape)} do not fit in the place of {tuple(self._features.shape)}: give "
                "one for each input, or any number for a single one"
            )
        if len(features) == inputs:
            return self._pass(self._x, features)[0]
        if not self._is_tried:
            self._is_tried, self._broadcasts = True, self._try()
        budget = current_budget()
        most = min(budget.forward, budget.cpu) if features.device.type == "cpu" else budget.forward
        return torch.cat([self._several(part) for part in torch.split(features, max(1, most // self._numbers))])

    def _several(self, features: Tensor) -> Tensor:
        if not self._broadcasts:
            return self._pass(self._x.expand(len(features), *self._x.shape[1:]), features)[0]
        with nullcontext() if self._front is None else self._front.replaying():
            return self._pass(self._x, features)[0]

    def _try(self) -> bool:
        """Whether the model computes several features beside one input as it would one by one, and whether it can go on from
        what it has computed before the layer: shown by the known features, whose outputs are known, beside others."""
        both, front = torch.cat([self._features, self._features / 2]), Front(self._model)
        try:
            with front.recording():
                is_right = self._is_right(self._pass(self._x, both, front)[0])
            if is_right:
                with front.replaying():
                    outputs, largest = self._pass(self._x, both)
                if self._is_right(outputs):
                    self._front, self._numbers = front, max(1, largest // 2)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return False
        return is_right

    def _is_right(self, outputs: Tensor) -> bool:
        error = (outputs[:1] - self._outputs).abs().max()
        return bool(error <= 1e-3 * self._outputs.abs().max().clamp(min=1e-6))

    def _pass(self, x: Tensor, features: Tensor, front: Front | None = None) -> tuple[Tensor, int]:
        """The logits, and the numbers in the largest tensor. The pass tells ``front`` when it has come to the layer."""
        replacement = features.detach().to(self._features.dtype).clone()  # the model may change it in place
        rules = Rules("gradient", replacement=replacement if self._activated else None)
        uses = 0

        def replace(output: Tensor) -> Tensor:
            nonlocal uses
            uses += 1
            if uses != self._uses:
                return output
            if front is not None:
                front.reached()
            if self._activated:  # the activation function returns the replacement
                rules.watch(output)
                return output
            return replacement

        with hooked(self._model, self._layer, replace), evaluating(self._model), torch.no_grad(), rules:
            logits = outputs_of(self._model, x)
        if len(logits) != len(features):
            raise ValueError(f"the model gives outputs of shape {tuple(logits.shape)} for {len(features)} features")
        return logits, rules.largest
