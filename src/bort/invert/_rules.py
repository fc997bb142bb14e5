r"""How a signal passes an activation function on its way back (paper, "Details of Guided-backpropagation").

.. math::
    \text{guided} \quad \hat a_i &= \hat s_i \text{ where } a_i > 0 \text{ and } \hat s_i > 0, \text{ else } 0 \\
    \text{deconvolution} \quad \hat a_i &= \hat s_i \text{ where } \hat s_i > 0, \text{ else } 0

Everything else goes back by its own transpose, which is what autograd computes. The rules are put in the place of every ReLU
that a model calls while :class:`Rules` is active, however it is written: nn.ReLU, F.relu, torch.relu, a method, in place,
the same module many times. The model itself is not touched.

In a network of smooth activations (GELU, SiLU and their kin in DeiT, Swin, ConvNeXt) the same rules stand in their place,
with "a > 0" read as "the activation is positive": they pass what excited the unit, and pass it whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

Rule = Literal["guided", "deconvolution", "gradient"]
RULES: Final = ("guided", "deconvolution", "gradient")

_RELU: Final[tuple[Callable[..., Any], ...]] = (F.relu, torch.relu, Tensor.relu)
_RELU_IN_PLACE: Final[tuple[Callable[..., Any], ...]] = (F.relu_, torch.relu_, Tensor.relu_)
SMOOTH: Final[tuple[Callable[..., Any], ...]] = (F.gelu, F.silu, F.mish, F.hardswish, F.elu, F.leaky_relu, F.relu6)


class _Guided(torch.autograd.Function):
    """The ReLU, or any activation whose value is given, with the guided rule for its derivative."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(value > 0)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *signals: Tensor) -> tuple[Tensor, None]:
        (positive,) = ctx.saved_tensors
        return signals[0].clamp(min=0) * positive, None


class _Deconvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *signals: Tensor) -> tuple[Tensor, None]:
        return signals[0].clamp(min=0), None


class Rules(TorchFunctionMode):
    """While active, ReLUs (or, if ``smooth``, smooth activations) go back by ``rule``. ``met`` counts them.

    If the tensor ``watched`` goes into an activation, what comes out is ``activated``. ``largest`` is how many numbers the
    largest tensor has that the model made: a measure of the memory that a pass takes.
    """

    def __init__(self, rule: Rule, *, smooth: bool = False) -> None:
        super().__init__()
        self.met = self.largest = 0
        self.smooth = smooth
        self._function: Any = {"guided": _Guided, "deconvolution": _Deconvolution, "gradient": None}[rule]
        self.watched: Tensor | None = None
        self.activated: Tensor | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        is_relu = func in _RELU or func in _RELU_IN_PLACE
        if not (is_relu or func in SMOOTH):
            made = func(*args, **options)
            if isinstance(made, Tensor):
                self.largest = max(self.largest, Tensor.numel(made))
            return made
        a: Tensor = args[0] if args else options.pop("input")
        rest = args[1:]
        if is_relu == self.smooth or self._function is None:
            result = func(a, *rest, **options)
        else:
            in_place = options.pop("inplace", False) or func in _RELU_IN_PLACE
            with torch.no_grad():
                value = torch.relu(a) if is_relu else func(a, *rest, **options)
            passed = self._function.apply(a, value)
            result = a.copy_(passed) if in_place else passed
        self.met += is_relu != self.smooth
        if self.watched is a:
            self.activated = result
        return result
