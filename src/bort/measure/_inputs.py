"""The inputs that each linear map of a model receives while the model runs on a batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bort import penalty
from bort._inspect import check_input, evaluating, run
from bort.layers import LinearMap, layer_inputs, linear_maps


class Use(NamedTuple):
    """A weight in one of the modules that use it."""

    name: str
    weight: Tensor
    module: nn.Module
    linear: LinearMap


Visit = Callable[[Use, Tensor, Tensor], None]
"""(use, W as (blocks, out, in), inputs z as (blocks, in, samples))"""


def uses_of(model: nn.Module) -> list[Use]:
    """Every linear map of a model, in order; a shared weight once for each module that uses it."""
    return [Use(*linear) for linear in linear_maps(model)]


@torch.no_grad()
def visit_inputs(model: nn.Module, x: Tensor, visit: Visit) -> None:
    """Run the model on x, in eval mode, and call ``visit`` for every input of every linear map. The model stays as it was."""
    check_input(model, x)

    def watch(use: Use) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        w = penalty.matrices(use.weight.detach(), blocks=use.linear.blocks, transposed=use.linear.transposed)

        def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            received = inputs[0] if inputs else next(iter(named.values()), None)
            if not isinstance(received, Tensor) or not received.is_floating_point():
                return
            for z in layer_inputs(module, received.detach().to(w.dtype), use.linear):
                visit(use, w, z)

        return hook

    with ExitStack() as stack:
        for use in uses_of(model):
            if isinstance(use.module, nn.MultiheadAttention) and not use.name.endswith("in_proj_weight"):
                continue  # separate projections of keys and values do not receive the module's first input
            stack.callback(use.module.register_forward_pre_hook(watch(use), with_kwargs=True).remove)
        with evaluating(model):
            run(model, x)
