"""Networks and images for tests."""

import numpy as np
import torch
from PIL import Image
from torch import nn


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


def write_images(folder, names, size=(20, 16)):
    """Random photographs."""
    random = np.random.default_rng(0)
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8)).save(file)
    return folder
