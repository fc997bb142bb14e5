"""The paper's all-convolutional networks: strided convolutions instead of pooling (appendix, tab:ACNN-Small)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

# channels of conv1 … conv5
_WIDTHS = {28: (8, 24, 288, 864, 2592), 32: (24, 64, 512, 1536, 4608)}


class ACNNSmall(nn.Module):
    """ACNN-Small for 28×28 (MNIST) or 32×32 (CIFAR-10) images; ``width`` narrows it for small machines.

    conv1, conv3 and conv5 have a ReLU, the strided conv2 and conv4 have none; then an adaptive max pool and a linear head.
    """

    def __init__(self, channels: int = 1, classes: int = 10, image_size: int = 28, width: float = 1.0) -> None:
        super().__init__()
        if image_size not in _WIDTHS:
            raise ValueError(f"image_size={image_size}: ACNN-Small reads images of 28×28 or 32×32")
        if not width > 0:
            raise ValueError(f"width={width}: must be greater than 0, 1 is the paper's")
        c1, c2, c3, c4, c5 = (max(1, round(width * c)) for c in _WIDTHS[image_size])
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
        logits: Tensor = self.head(F.adaptive_max_pool2d(self.features(x), 1).flatten(1))
        return logits
