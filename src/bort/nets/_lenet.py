"""LeNet-5 with ReLU and max pooling, the small network of the paper's Table 1."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class LeNet(nn.Module):
    """Two convolutions, three linear layers; for 28×28 (padded to 32) or 32×32 images."""

    def __init__(self, channels: int = 1, classes: int = 10, image_size: int = 28) -> None:
        super().__init__()
        if image_size not in (28, 32):
            raise ValueError(f"image_size={image_size}: LeNet reads images of 28×28 or 32×32")
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=(32 - image_size) // 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.head = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        x = F.relu(self.fc2(x))
        logits: Tensor = self.head(x)
        return logits
