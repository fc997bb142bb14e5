"""How a network is laid out in memory."""

import pytest
import torch
from torch import nn

from bort.train._wrap import layout


@pytest.mark.parametrize(
    ("conv", "expected"),
    [
        (nn.Conv2d(512, 16, 7), torch.contiguous_format),  # VGG's classifier as timm writes it
        (nn.Conv2d(3, 64, 7), torch.channels_last),  # ResNet's first
        (nn.Conv2d(96, 96, 7, groups=96), torch.channels_last),  # ConvNeXt's
        (nn.Conv2d(512, 512, 3), torch.channels_last),
    ],
)
def test_a_large_kernel_on_many_channels_is_not_for_channels_last(conv, expected):
    assert layout(nn.Sequential(nn.Conv2d(3, 512, 1), conv)) is expected
