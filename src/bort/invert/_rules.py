r"""How a signal passes an activation function on its way back (paper, "Details of Guided-backpropagation").

.. math::
    \text{guided} \quad \hat a_i &= \hat s_i \text{ where } a_i > 0 \text{ and } \hat s_i > 0, \text{ else } 0 \\
    \text{deconvolution} \quad \hat a_i &= \hat s_i \text{ where } \hat s_i > 0, \text{ else } 0

Everything else goes back by its own transpose, which is what autograd computes. While :class:`Rules` is active, the rule
replaces the derivative of every ReLU that a model calls, however it is written: nn.ReLU, F.relu, torch.relu, a method, in
place, one module many times, a clamp or threshold at 0. Only torch.maximum(x, 0) and arithmetic such as x · (x > 0) are not
recognised. The model itself is not changed.

The same rules replace the derivatives of smooth activations (GELU, SiLU and others, in DeiT, Swin, ConvNeXt), with "the
activation function's value is positive" for :math:`a_i > 0`; the signal passes unscaled. A network may have both kinds, as
MobileNetV3 with its Hardswish and the ReLUs of its squeeze-and-excitation blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from bort._budget import TensorCount

Rule = Literal["guided", "deconvolution", "gradient"]
"""How a signal passes activation functions on its way back; "gradient" is autograd's own way."""
RULES: Final = ("guided", "deconvolution", "gradient")
"""All values of :data:`Rule`."""

_Call = Callable[..., Any]
_RELU: Final[tuple[_Call, ...]] = (F.relu, torch.relu, Tensor.relu)
_RELU_IN_PLACE: Final[tuple[_Call, ...]] = (F.relu_, torch.relu_, Tensor.relu_)
_CLAMP: Final[tuple[_Call, ...]] = (torch.clamp, Tensor.clamp, torch.clamp_min, Tensor.clamp_min)
_CLAMP_IN_PLACE: Final[tuple[_Call, ...]] = (torch.clamp_, Tensor.clamp_, torch.clamp_min_, Tensor.clamp_min_)
_SMOOTH: Final[tuple[_Call, ...]] = (
    *(F.gelu, F.silu, F.mish, F.hardswish, F.elu, F.selu, F.celu, F.softplus),
    *(F.leaky_relu, F.relu6, F.hardtanh),  # nn.ReLU6 calls hardtanh
)


def _is_relu(func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[bool, bool]:
    """Whether a call computes max(x, 0), and whether it does so in place without an option ``inplace`` that says it."""
    if func in _RELU or func in _RELU_IN_PLACE:
        return True, func in _RELU_IN_PLACE
    if func in _CLAMP or func in _CLAMP_IN_PLACE:
        low = args[1] if len(args) > 1 else options.get("min")
        high = args[2] if len(args) > 2 else options.get("max")
        return isinstance(low, (int, float)) and low == 0 and high is None, func in _CLAMP_IN_PLACE
    if func is F.threshold:
        numbers = [*args[1:3], *(options[name] for name in ("threshold", "value") if name in options)]
        return numbers[:2] == [0, 0], len(args) > 3 and bool(args[3])
    return False, False


class _Guided(torch.autograd.Function):
    """An activation function, whose value for ``a`` is given, with the guided rule in the place of its derivative."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(value > 0)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *signals: Tensor) -> tuple[Tensor, None]:
        (positive,) = ctx.saved_tensors
        return signals[0].clamp(min=0) * positive, None


class _Deconvolution(torch.autograd.Function):
    """The same with the rule of deconvolution."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *signals: Tensor) -> tuple[Tensor, None]:
        return signals[0].clamp(min=0), None


class Rules(TensorCount):
    """While active, ReLUs and smooth activations go back by ``rule``. The pass's tensors are counted too.

    If the :meth:`watch`-ed tensor goes into an activation function and nowhere else, the function's result is ``activated``;
    if there is a ``replacement``, the function returns that instead.
    """

    def __init__(self, rule: Rule, *, replacement: Tensor | None = None) -> None:
        super().__init__()
        self.activations = 0
        """How many calls the rule was for."""
        self.smooth = False
        """Whether some of them were of smooth activations."""
        self.activated: Tensor | None = None
        self._function: Any = {"guided": _Guided, "deconvolution": _Deconvolution, "gradient": None}[rule]
        self._watched: Tensor | None = None
        self._replacement = replacement

    def watch(self, tensor: Tensor) -> None:
        self._watched, self.activated = tensor, None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        is_relu, in_place = _is_relu(func, args, options)
        if is_relu or func in _SMOOTH:
            in_place |= bool(options.get("inplace", False))
            return self._activation(func, args, options, is_relu=is_relu, in_place=in_place)
        result = func(*args, **options)
        if isinstance(result, Tensor):
            self.count(result)
            if self._watched is not None and any(value is self._watched for value in (*args, *options.values())):
                self._watched = self.activated = None  # used elsewhere as well: the features are the layer's own output
        return result

    def _activation(
        self, func: Any, args: tuple[Any, ...], options: dict[str, Any], *, is_relu: bool, in_place: bool
    ) -> Tensor:
        if not args:
            args = (options.pop("input"),)
        a: Tensor = args[0]
        result: Tensor
        if self._function is None:
            result = func(*args, **options)
        else:
            options.pop("inplace", None)
            with torch.no_grad():
                value = torch.relu(a) if is_relu else func(*args, **options)
            passed = self._function.apply(a, value)
            result = a.copy_(passed) if in_place else passed
        self.activations += 1
        self.smooth |= not is_relu
        self.count(result)
        if self._watched is a:
            if self._replacement is not None:
                # In place, the model may go on with the tensor that it handed in.
                result = a.set_(self._replacement) if in_place else self._replacement  # type: ignore[call-overload]
            self.activated = result
            if result is a:  # in place: every later use is one of the activated tensor
                self._watched = None
        return result
