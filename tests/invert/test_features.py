"""Which tensor a layer's features are: after its activation, before a skip, in a tuple; and other features in their place."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bort import nets
from bort.invert import Backtracker, forward_from
from tests.invert.test_backtrack import Net, seeds


class Skip(nn.Module):
    """Its first layer feeds an activation and a skip, or is added to in place."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.kind = nn.Conv2d(1, 3, 1), nn.Conv2d(3, 3, 1), kind

    def forward(self, x):
        z = self.a(x)
        if self.kind == "skip":
            z = z + self.b(F.relu(z))
        else:
            z += x
            z = F.relu(z)
        return z.mean(dim=(2, 3))


def test_a_layer_with_a_skip_around_the_activation():
    net, x = Skip("skip").double(), seeds(2, 1, 4, 4)
    trace = Backtracker(net, "a", "gradient").trace(x)
    z = net.a(x).detach().requires_grad_()
    torch.testing.assert_close(trace.features, z.detach())
    assert not trace.activated
    out = (z + net.b(F.relu(z))).mean(dim=(2, 3))
    (expected,) = torch.autograd.grad(out[:, 1].sum(), z)
    torch.testing.assert_close(trace.slope(torch.tensor([1, 1])), expected)


def test_a_layer_that_is_added_to_in_place():
    net, x = Skip("in place").double(), seeds(2, 1, 4, 4)
    torch.testing.assert_close(Backtracker(net, "a").features(x), net.a(x).detach())


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 3, 1)

    def forward(self, x):
        return self.a(x), None


@pytest.mark.parametrize("activation", [nn.GELU(), nn.ReLU(), nn.Identity()])
@pytest.mark.parametrize("pair", [False, True])
def test_forward_from_maps(activation, pair):
    """Maps take the features' place: after the activation, or inside the tuple that a layer returns."""

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = Pair() if pair else nn.Conv2d(1, 3, 1)
            self.activation, self.head = activation, nn.Linear(3, 4)

        def forward(self, x):
            z = self.first(x)
            return self.head(self.activation(z[0] if pair else z).amax(dim=(2, 3)))

    net, x = Whole().double(), seeds(2, 1, 4, 4)
    back = Backtracker(net, "first", "gradient")
    maps = seeds(2, 3, 4, 4, seed=1) - 0.5
    torch.testing.assert_close(forward_from(net, "first", x, maps), net.head(maps.amax(dim=(2, 3))))
    torch.testing.assert_close(forward_from(net, "first", x, back.features(x)), net(x))


def test_under_inference_mode():
    net = Net("module").double()
    with torch.inference_mode():
        x = seeds(2, 2, 10, 10)
        image = Backtracker(net, "conv3").reconstruct(x)
    torch.testing.assert_close(image, Backtracker(net, "conv3").reconstruct(seeds(2, 2, 10, 10)))


def test_features_that_are_not_the_images():
    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2)

        def forward(self, x):
            return F.relu(self.a(x.reshape(-1, 2))).reshape(len(x), -1)

    with pytest.raises(ValueError, match=r"features of shape \(6, 2\) for 3 images"):
        Backtracker(Windows(), "a").trace(torch.rand(3, 4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layer", "shape"),
    [
        ("timm/swin_tiny_patch4_window7_224", "patch_embed.proj", (96, 16, 16)),
        ("timm/swin_tiny_patch4_window7_224", "layers.0", (96, 16, 16)),
        ("timm/convnext_tiny", "stages.0.blocks.0.mlp.fc2", (96, 16, 16)),
        ("timm/convnext_tiny", "stages.0.blocks.0", (96, 16, 16)),
    ],
)
def test_layouts_by_layer(name, layer, shape):
    net = nets.create(name, classes=2, image_size=64)
    assert Backtracker(net, layer).trace(torch.randn(1, 3, 64, 64)).grid.shape == shape
