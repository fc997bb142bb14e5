"""What each layer of a model really receives, layer by layer and image by image, while the model runs once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bort import penalty
from bort._inspect import check_input, evaluating
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
    """Every known linear map of a model, in order; a shared weight as often as it is used."""
    return [Use(*found) for found in linear_maps(model)]


@torch.no_grad()
def visit_inputs(model: nn.Module, x: Tensor, visit: Visit) -> None:
    """Run the model on x, in eval mode, and show ``visit`` every input of every linear map. The model is left as it was."""
    check_input(model, x)

    def watch(use: Use) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        w = penalty.matrices(use.weight.detach(), blocks=use.linear.blocks, transposed=use.linear.transposed)

        def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            given = inputs[0] if inputs else next(iter(named.values()), None)
            if not isinstance(given, Tensor) or not given.is_floating_point():
                return
            for z in layer_inputs(module, given.detach().to(w.dtype), use.linear):
                visit(use, w, z)

        return hook

    with ExitStack() as stack:
        for use in uses_of(model):
            if isinstance(use.module, nn.MultiheadAttention) and not use.name.endswith("in_proj_weight"):
                continue  # separate projections of keys and values, whose inputs are other than the module's first
            stack.callback(use.module.register_forward_pre_hook(watch(use), with_kwargs=True).remove)
        with evaluating(model):
            model(x * 1)
