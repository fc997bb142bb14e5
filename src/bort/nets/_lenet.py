"""LeNet-5, the small network of the paper's Table 1. The paper does not describe it: ReLU and max pooling are our choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
_POOLS: Final[dict[str, Callable[[Tensor, int], Tensor]]] = {"max": F.max_pool2d, "average": F.avg_pool2d}


class LeNet(nn.Module):
    """Two convolutions, three linear layers; for 28×28 (padded to 32) or 32×32 images.

    With ``last="relu"`` a ReLU follows the last layer too. A class whose logit is negative for all images then gets no
    gradient and stays at 0 (docs/reproduction.md: the paper's LeNet may have this ReLU).

    Example:
        >>> nets.LeNet(activation="tanh")(torch.rand(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        channels: int = 1,
        classes: int = 10,
        image_size: int = 28,
        activation: Literal["relu", "tanh", "sigmoid"] = "relu",
        pool: Literal["max", "average"] = "max",
        last: Literal["linear", "relu"] = "linear",
    ) -> None:
        super().__init__()
        if image_size not in (28, 32):
            raise ValueError(f"image_size={image_size}: LeNet reads images of 28×28 or 32×32")
        if activation not in _ACTIVATIONS or pool not in _POOLS:
            raise ValueError(
                f"activation={activation!r}, pool={pool!r}: choose relu, tanh or sigmoid, and max or average"
            )
        if last not in ("linear", "relu"):
            raise ValueError(f"last={last!r}: choose linear or relu")
        self._ends_in_relu = last == "relu"
        self._activation, self._pool = _ACTIVATIONS[activation], _POOLS[pool]
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=(32 - image_size) // 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.head = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self._pool(self._activation(self.conv1(x)), 2)
        x = self._pool(self._activation(self.conv2(x)), 2)
        x = self._activation(self.fc1(x.flatten(1)))
        x = self._activation(self.fc2(x))
        logits: Tensor = self.head(x)
        return F.relu(logits) if self._ends_in_relu else logits
