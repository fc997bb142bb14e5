"""Images for the tests of augmentation."""

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def natural(count: int, height: int, width: int, seed: int = 0) -> Tensor:
    """(count, 3, height, width) in uint8: smooth shapes, edges, some noise, bright parts that are clipped."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    images = np.zeros((count, 3, height, width))
    for image in images:
        for _ in range(6):
            fy, fx, phase = generator.normal(0, 5, 3)
            image += generator.normal(0, 25, (3, 1, 1)) * np.sin(fy * y + fx * x + phase)
        image += generator.normal(0, 60, (3, 1, 1)) * (generator.normal() * (y - 0.5) > generator.normal() * (x - 0.5))
    images += generator.normal(0, 6, images.shape) + 128
    return torch.from_numpy(images.clip(0, 255).astype(np.uint8))


def special(height: int, width: int) -> Tensor:
    """Images on which histograms are special: flat, black, two values, one pixel that differs, 250 of them, a full range."""
    images = torch.full((6, 3, height, width), 77, dtype=torch.uint8)
    images[1] = 0
    images[2, :, : height // 3] = 255
    images[3, :, 0, 0] = 76
    images[4].view(3, -1)[:, :250] = torch.arange(250, dtype=torch.uint8)
    images[5] = torch.linspace(0, 255, height * width).round().to(torch.uint8).view(height, width)
    return images


def to_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def from_pil(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
