"""How a network is laid out in memory for a GPU."""

import copy

import pytest
import torch
from torch import nn

from bort.train._wrap import WholeMapConv2d, lay_out


@pytest.mark.parametrize(
    ("conv", "is_large"),
    [
        (nn.Conv2d(512, 16, 7), True),  # VGG's classifier as timm writes it
        (nn.Conv2d(3, 64, 7), False),  # ResNet's first
        (nn.Conv2d(96, 96, 7, groups=96), False),  # ConvNeXt's
        (nn.Conv2d(512, 512, 3), False),
    ],
)
def test_all_is_in_channels_last_but_large_kernels_on_many_channels(conv, is_large):
    net = lay_out(nn.Sequential(nn.Conv2d(3, 512, 2), conv), torch.device("cpu"))
    assert isinstance(net[1], WholeMapConv2d) == is_large
    assert net[1].weight.is_contiguous() == (is_large or conv.weight.shape[1] == 1)
    assert net[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


@pytest.mark.parametrize("size", [7, 9], ids=["the kernel's size", "larger"])
@pytest.mark.parametrize(
    "options", [{}, {"padding": 1}, {"groups": 2, "bias": False}, {"padding": "valid", "stride": 2}]
)
def test_a_large_kernel_gives_what_the_convolution_gives(options, size):
    plain = nn.Conv2d(132, 4, 7, **options).double()
    large = lay_out(nn.Sequential(copy.deepcopy(plain)), torch.device("cpu"))[0]
    assert isinstance(large, WholeMapConv2d)
    x = torch.randn(2, 132, size, size, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [conv(image) for conv, image in zip((plain, copy.deepcopy(large)), inputs, strict=True)]
    torch.testing.assert_close(outputs[1], outputs[0])
    for output in outputs:
        output.square().sum().backward()
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad)
