"""The weight that a convolution multiplies with, where that is not the one it stores."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode

from bort._inspect import evaluating

_CONVOLUTIONS: Final = (F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
_ORDINARY: Final = {
    *(kind.forward for kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d)),
    *(kind.forward for kind in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)),
}


def used_weight(module: nn.Module, stored: Tensor) -> Tensor:
    """The weight that the module convolves with. timm's StdConv2d and others have a forward of their own that standardizes
    the stored weight first: they are asked with an image of zeros. The stored weight if that does not tell."""
    if not is_own_convolution(module):
        return stored
    sides = [(k - 1) * dilation + 1 for k, dilation in zip(module.kernel_size, module.dilation, strict=True)]
    watch = _Watch()
    try:
        with torch.no_grad(), evaluating(module), watch:
            module.forward(stored.new_zeros(1, module.in_channels, *sides))  # forward: no hooks of the user's
    except Exception:  # somebody else's code, which may need another input
        return stored
    weights = [weight.detach() for weight in watch.weights if weight.shape == stored.shape]
    return weights[0] if len(weights) == 1 and weights[0].data_ptr() != stored.data_ptr() else stored


def is_own_convolution(module: nn.Module) -> TypeGuard[_ConvNd]:
    """Whether a convolution has a forward of its own, which may standardize its weight or pad its input."""
    return isinstance(module, _ConvNd) and type(module).forward not in _ORDINARY


class _Watch(TorchFunctionMode):
    """While active, keeps the weights of all convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _CONVOLUTIONS:
            weight = args[1] if len(args) > 1 else (kwargs or {}).get("weight")
            if isinstance(weight, Tensor):
                self.weights.append(weight)
        return func(*args, **(kwargs or {}))
