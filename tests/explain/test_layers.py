"""Which layers have maps, and which of them is the top one."""

import pytest
import torch
from torch import nn

from bort import explain, nets


def test_layers_with_maps(net, x):
    layers = explain.map_layers(net, x)
    assert list(layers) == ["conv1", "conv2", "conv3", "conv4", "conv5"]
    assert layers["conv5"].shape == (net.conv5.out_channels, 6, 6)
    assert explain.top_layer(net, x) == "conv5"


def test_tokens_that_decide():
    """After the last attention of a ViT only the class token reaches the logits, so its places decide nothing."""
    torch.manual_seed(0)
    net = nets.create("timm/deit_tiny_patch16_224", classes=4, image_size=64)
    x = torch.randn(1, 3, 64, 64)
    assert explain.top_layer(net, x) == "norm"
    deciding = explain.top_layer(net, x, deciding=True)
    assert deciding == "blocks.11.norm1"
    assert explain.map_layers(net, x)[deciding].shape == (192, 4, 4)


def test_a_model_without_maps():
    with pytest.raises(ValueError, match="Sequential has no layer with a feature map: name one with layer="):
        explain.top_layer(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.rand(1, 1, 2, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("timm/resnet18", "layer4"),
        ("timm/densenet121", "features"),
        ("timm/inception_v3", "Mixed_7c"),
        ("timm/deit_tiny_patch16_224", "norm"),
        ("timm/swin_tiny_patch4_window7_224", "norm"),
        ("timm/convnext_atto", "stages"),
        ("timm/mobilenetv2_050", "bn2"),
    ],
)
def test_networks_of_timm(name, layer):
    """The top layer is the expected one, token grids are reshaped, and maps come out."""
    torch.manual_seed(0)
    size = 128 if "inception" in name else 64
    net, x = nets.create(name, classes=4, image_size=size), torch.randn(2, 3, size, size)
    assert explain.top_layer(net, x) == layer
    for method in (explain.cam, explain.sat):
        maps = method(net, x)
        assert maps.shape == (2, size, size)
        assert (maps.std(dim=(1, 2)) > 0).all()
