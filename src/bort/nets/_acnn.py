"""The paper's all-convolutional networks: strided convolutions instead of pooling (tab:ACNN-Small, tab:ACNN-Base)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

# channels of conv1 … conv5
_WIDTHS = {28: (8, 24, 288, 864, 2592), 32: (24, 64, 512, 1536, 4608)}


class ACNNSmall(nn.Module):
    """ACNN-Small for 28×28 (MNIST) or 32×32 (CIFAR-10) images.

    conv1, conv3 and conv5 have a ReLU, the strided conv2 and conv4 have none; then an adaptive max pool and a linear head.
    ``width`` scales the number of channels of each layer, for small machines; ``narrowest`` is the least number that this may
    leave of a layer (or the paper's own number, where that is smaller).

    Example:
        >>> nets.ACNNSmall(width=0.05).features(torch.rand(2, 1, 28, 28)).shape[2:]
        torch.Size([6, 6])
    """

    def __init__(
        self, channels: int = 1, classes: int = 10, image_size: int = 28, width: float = 1.0, narrowest: int = 1
    ) -> None:
        super().__init__()
        if image_size not in _WIDTHS:
            raise ValueError(f"image_size={image_size}: ACNN-Small reads images of 28×28 or 32×32")
        c1, c2, c3, c4, c5 = (_narrow(c, width, narrowest) for c in _WIDTHS[image_size])
        self.conv1 = nn.Conv2d(channels, c1, 5, padding=1 if image_size == 28 else 0)
        self.conv2 = nn.Conv2d(c1, c2, 2, stride=2)
        self.conv3 = nn.Conv2d(c2, c3, 4, padding=1)
        self.conv4 = nn.Conv2d(c3, c4, 2, stride=2)
        self.conv5 = nn.Conv2d(c4, c5, 3, padding=1)
        self.head = nn.Linear(c5, classes)

    def features(self, x: Tensor) -> Tensor:
        """The top feature map Z, (N, c5, 6, 6)."""
        x = self.conv2(F.relu(self.conv1(x)))
        x = self.conv4(F.relu(self.conv3(x)))
        return F.relu(self.conv5(x))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(_pool(self.features(x)))
        return logits


# channels, kernel and stride of conv1 … conv11; conv12 has a channel for each class
_BASE = (
    (96, 10, 3),
    (96, 1, 1),
    (96, 3, 2),
    (256, 3, 1),
    (256, 1, 1),
    (256, 3, 2),
    (384, 3, 1),
    (384, 1, 1),
    (384, 3, 2),
    (1024, 3, 1),
    (1024, 1, 1),
)


class ACNNBase(nn.Module):
    """ACNN-Base for ImageNet: twelve convolutions, a ReLU after each, an adaptive max pool over the classes' maps.

    The table gives conv1 a padding of 4 and the others none, which needs images of 128 × 128 or more. For smaller ones (Tiny
    ImageNet) the 3 × 3 convolutions are padded by 1, and the attribute ``padded`` is True. ``width`` and ``narrowest`` are
    those of :class:`ACNNSmall`.

    The initial weights are He's, N(0, 2 / fan-in), and biases are 0: PyTorch's default initialisation shrinks the signal by
    √6 a layer, and after twelve layers, with a ReLU on the classes too, no gradient is left.

    Example:
        >>> model = nets.ACNNBase(classes=100, image_size=64, width=0.02)
        >>> model(torch.rand(1, 3, 64, 64)).shape, model.padded
        (torch.Size([1, 100]), True)
    """

    def __init__(
        self, channels: int = 3, classes: int = 1000, image_size: int = 224, width: float = 1.0, narrowest: int = 1
    ) -> None:
        super().__init__()
        if image_size < 16:
            raise ValueError(
                f"image_size={image_size}: ACNN-Base reads images of 16×16 or more, the paper's are 224×224"
            )
        self.padded = image_size < 128
        layers = [*((_narrow(c, width, narrowest), kernel, stride) for c, kernel, stride in _BASE), (classes, 1, 1)]
        for number, (out, kernel, stride) in enumerate(layers, start=1):
            padding = 4 if number == 1 else (kernel // 2 if self.padded else 0)
            conv = nn.Conv2d(channels, out, kernel, stride, padding)
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            setattr(self, f"conv{number}", conv)
            channels = out

    def features(self, x: Tensor) -> Tensor:
        """The top feature map: one channel a class."""
        for number in range(1, 13):
            x = F.relu(getattr(self, f"conv{number}")(x))
        return x

    def forward(self, x: Tensor) -> Tensor:
        return _pool(self.features(x))


def _narrow(channels: int, width: float, narrowest: int) -> int:
    if not width > 0:
        raise ValueError(f"width={width}: must be greater than 0, 1 is the paper's")
    if narrowest < 1:
        raise ValueError(f"narrowest={narrowest}: a layer has at least 1 channel")
    return max(min(channels, narrowest), round(width * channels))


def _pool(maps: Tensor) -> Tensor:
    """The adaptive max pool to 1 × 1, written as a max pool of the map's own size: equal to the bit, forward and backward,
    and faster on channels_last maps, which adaptive_max_pool2d copies to another format and back (docs/training.md)."""
    return F.max_pool2d(maps, maps.shape[-2:]).flatten(1)
