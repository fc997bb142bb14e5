"""The inputs that each linear map of a model receives while the model runs on a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from bort import penalty
from bort._inspect import check_input, evaluating, run
from bort._precision import own_precision
from bort._used_weight import is_own_convolution, used_weight
from bort.layers import LinearMap, layer_inputs, linear_maps

Source = Tensor | str


class Use(NamedTuple):
    """A weight in one of the modules that use it."""

    name: str
    weight: Tensor
    """As the module multiplies with it, which may be computed from what it stores."""
    module: nn.Module
    linear: LinearMap
    source: Source
    """What is the same for all uses of a shared weight: the parameter, or the name of a weight that is computed."""


Visit = Callable[[Use, Tensor, Tensor], None]
"""(use, W as (blocks, out, in), inputs z as (blocks, in, samples))"""


def uses_of(model: nn.Module) -> list[Use]:
    """Every linear map of a model, in order; a shared weight once for each module that uses it."""
    return [
        Use(name, used_weight(module, stored), module, linear, stored if isinstance(stored, nn.Parameter) else name)
        for name, stored, module, linear in linear_maps(model)
    ]


def weights_of(model: nn.Module) -> dict[Source, Use]:
    """Every linear map of a model, in order; a shared weight once, as the first module uses it."""
    weights: dict[Source, Use] = {}
    for use in uses_of(model):
        weights.setdefault(use.source, use)
    return weights


@torch.no_grad()
def visit_inputs(model: nn.Module, x: Tensor, visit: Visit, only: nn.Module | None = None) -> None:
    """Run the model on x, in eval mode, and call ``visit`` for every input of every linear map, or of those of one module.
    The model stays as it was. The model runs as the caller has set it; ``visit`` computes in full float32."""
    check_input(model, x)

    def precisely(use: Use, w: Tensor, z: Tensor) -> None:
        with own_precision("highest", w.device):
            visit(use, w, z)

    elsewhere = _UsedElsewhere(precisely)
    with ExitStack() as stack:
        for use in uses_of(model):
            if only is not None and use.module is not only:
                continue
            elsewhere.add(use)
            if isinstance(use.module, nn.MultiheadAttention) and not use.name.endswith("in_proj_weight"):
                continue  # separate projections of keys and values do not receive the module's first input
            stack.enter_context(_hooked(use, precisely, elsewhere))
        # Any torch function mode keeps attention from its fused kernel, which would hide the product with out_proj.
        with evaluating(model), BaseTorchFunctionMode(), elsewhere:
            run(model, x)


@contextmanager
def _hooked(use: Use, visit: Visit, elsewhere: _UsedElsewhere) -> Iterator[None]:
    """Inside, ``visit`` is called for what the module is called with."""
    w, address = _matrices(use), use.weight.data_ptr()

    def before(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        elsewhere.running.append(address)
        received = inputs[0] if inputs else next(iter(named.values()), None)
        if not isinstance(received, Tensor) or not received.is_floating_point():
            return
        if isinstance(module, nn.MultiheadAttention) and not _is_self_attention(inputs, named):
            return  # parts of its weight are multiplied with other inputs than the first
        if is_own_convolution(module):
            elsewhere.convolving[address] = use, received
        else:
            visit_all(received)

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        elsewhere.running.remove(address)
        if address in elsewhere.convolving:  # it has called no convolution that could be seen
            visit_all(elsewhere.convolving.pop(address)[1])

    def visit_all(received: Tensor) -> None:
        for z in layer_inputs(use.module, received.detach().to(w.dtype), use.linear):
            visit(use, w, z)

    hooks = (
        use.module.register_forward_pre_hook(before, with_kwargs=True),
        use.module.register_forward_hook(after, always_call=True),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _is_self_attention(inputs: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether query, key and value are the same numbers in memory, or a subclass is called with the query alone."""
    given = (*inputs[:3], *(named.get(name) for name in ("query", "key", "value")[len(inputs) :]))
    views = {(t.data_ptr(), t.shape, t.stride()) for t in given if isinstance(t, Tensor)}
    return len(views) == 1


class _UsedElsewhere(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, visits inputs that a module's call does not show: those of linear layers whose weights a model multiplies
    with by itself, without calling the layer (torchvision's Swin and torch's own attention do that), and those of
    convolutions that pad in a forward of their own (timm's Conv2dSame)."""

    def __init__(self, visit: Visit) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.running: list[int] = []
        """Addresses of the weights of modules that are being called: their inputs are known from the hooks."""
        self.convolving: dict[int, tuple[Use, Tensor]] = {}
        """Convolutions with a forward of their own that are being called, by the address of the weight, and their inputs."""
        self._visit = visit
        self._uses: dict[int, Use] = {}  # by the address of the weight

    def add(self, use: Use) -> None:
        if use.weight.ndim == 2 and not use.linear.transposed:
            self._uses.setdefault(use.weight.data_ptr(), use)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default):  # what x Wᵀ (+ b) comes to
            z, transposed = args[-2:]
            address = transposed.data_ptr()
            use = None if address in self.running else self._uses.get(address)
            if use is not None and use.weight.shape == transposed.shape[::-1]:
                w = _matrices(use)
                self._visit(use, w, z.mT.to(w.dtype).unsqueeze(0).expand(use.linear.blocks, -1, -1))
        elif func is torch.ops.aten.convolution.default and self.convolving:
            self._visit_convolution(args[0], args[1], padding=args[4])
        return func(*args, **(kwargs or {}))

    def _visit_convolution(self, x: Tensor, weight: Tensor, padding: list[int]) -> None:
        address, (use, _) = next(reversed(self.convolving.items()))
        if use.weight.shape == weight.shape:
            del self.convolving[address]
            w = _matrices(use)
            padded = x if use.linear.transposed else F.pad(x, [side for side in reversed(padding) for _ in range(2)])
            for z in layer_inputs(use.module, padded.to(w.dtype), use.linear, padded=True):
                self._visit(use, w, z)


def _matrices(use: Use) -> Tensor:
    return penalty.matrices(use.weight.detach(), blocks=use.linear.blocks, transposed=use.linear.transposed)
