"""Where the channels are: before or behind the places, for images of any proportions."""

import pytest
import torch
from torch import nn

from bort import explain, invert
from bort._layouts import by_kind, known_maps
from bort.invert import Backtracker, grid_of


def torchvision(name):
    models = pytest.importorskip("torchvision").models
    from torchvision.models.convnext import CNBlockConfig

    stages = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, 64, 1), CNBlockConfig(64, None, 1)]
    return {
        "mobilenet": lambda: models.mobilenet_v3_small(num_classes=3),
        "densenet": lambda: models.DenseNet(8, (2, 2, 2), 16, num_classes=3),
        "convnext": lambda: models.ConvNeXt(stages, num_classes=3),
        "swin": lambda: models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=3),
    }[name]()


def hugging_face():
    transformers = pytest.importorskip("transformers")
    config = transformers.ConvNextConfig(hidden_sizes=[16, 32, 64], depths=[1, 1, 1], num_stages=3)
    return transformers.ConvNextForImageClassification(config)


def shapes(model, height, width):
    """The output of every layer and block."""
    outputs = {}
    hooks = [
        module.register_forward_hook(lambda _, __, output, name=name: outputs.update({name: output}))
        for name, module in model.named_modules()
    ]
    with torch.no_grad():
        model(torch.randn(1, 3, height, width))
    for hook in hooks:
        hook.remove()
    return {name: output.shape for name, output in outputs.items() if isinstance(output, torch.Tensor)}


@pytest.mark.parametrize("name", ["mobilenet", "densenet", "convnext", "swin", "hugging face"])
@pytest.mark.parametrize("size", [(64, 128), (128, 64), (64, 64)])
def test_places_are_what_follows_the_size_of_the_image(name, size):
    """The oracle: these networks take images of any size, and a larger image has more places, not more channels. Several of
    their maps have as many channels as rows or columns."""
    torch.manual_seed(0)
    model = (hugging_face() if name == "hugging face" else torchvision(name)).eval()
    small, large = shapes(model, *size), shapes(model, 4 * size[0], 4 * size[1])
    layers = explain.map_layers(model, torch.randn(1, 3, *size))
    assert len(layers) > 10
    kinds = set()
    for layer, grid in layers.items():
        first = small[layer][2:] != large[layer][2:] and small[layer][1] == large[layer][1]
        kinds.add(grid.layout)
        assert grid.layout == ("channels first" if first else "channels last"), layer
    assert len(kinds) == (1 if name in ("mobilenet", "densenet") else 2)


@pytest.mark.parametrize("size", [(64, 128), (32, 32)])
def test_one_layer_by_itself(size):
    """A trace finds the layout as the list of all layers does."""
    torch.manual_seed(0)
    model, x = torchvision("swin").eval(), torch.randn(2, 3, *size)
    layers = explain.map_layers(model, x)
    for layer in ("features.1.0", "features.1", "features.3.1", "features.1.0.mlp"):
        assert Backtracker(model, layer).trace(x).grid == layers[layer]
        assert layers[layer].layout == "channels last"


class Permuted(nn.Module):
    """Channels last inside, with as many channels as rows and columns: no shape can tell."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 1)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.GELU())
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(self.block(self.stem(x).permute(0, 2, 3, 1))).mean(dim=(1, 2)))


def test_maps_of_a_network_that_permutes():
    """One pixel of the input is one place of the map. CAM of the pixel is there, and SAT's signals come from there."""
    torch.manual_seed(0)
    model, x = Permuted(), torch.rand(1, 1, 8, 8)
    assert known_maps(model, x).layouts["block"] == "channels last"
    trace = Backtracker(model, "block", "gradient").trace(x)
    assert trace.grid.layout == "channels last"
    seed = torch.zeros(1, 8, 8, 8)
    seed[0, 3, 2, 5] = 1
    signal = trace.back(seed)[0, 0]
    assert signal.nonzero().tolist() == [[2, 5]]
    places = invert.decompose(model, x, "block", 4, rule="gradient")
    for signal, (row, column) in zip(places.signals[0, :, 0], places.places[0], strict=True):
        assert signal.nonzero().tolist() == [[row, column]]


def test_kinds():
    shape = torch.Size([2, 8, 6, 8])

    class Channels(nn.LayerNorm):
        data_format = "channels_first"

    class LayerNorm2d(nn.LayerNorm):
        pass

    for module in (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8), nn.AvgPool2d(2)):
        assert by_kind(module, shape) == "channels first"
    assert by_kind(Channels(8), shape) == by_kind(LayerNorm2d(8), shape) == "channels first"
    for module in (nn.Linear(4, 8), nn.LayerNorm(8)):
        assert by_kind(module, shape) == "channels last"
    for module in (nn.LayerNorm([8, 6, 8]), nn.GELU(), nn.Sequential()):
        assert by_kind(module, shape) is None


class Heads(nn.Module):
    """Attention with a norm of each head's queries: (N, heads, tokens, channels)."""

    def __init__(self):
        super().__init__()
        self.patches, self.norm, self.head = nn.Conv2d(1, 24, 4, 4), nn.LayerNorm(8), nn.Linear(24, 3)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).mT
        heads = self.norm(tokens.unflatten(2, (3, 8)).transpose(1, 2))
        return self.head(heads.transpose(1, 2).flatten(2).relu().mean(dim=1))


def test_heads_are_not_rows():
    model, x = Heads(), torch.rand(2, 1, 16, 16)
    assert list(explain.map_layers(model, x)) == ["patches"]
    with pytest.raises(ValueError, match=r"features of shape \(2, 3, 16, 8\): that is no map with places in the image"):
        explain.cam(model, x, layer="norm")


def test_channels_before_tokens():
    """What a Mixer's first MLP gives: 16 tokens, of which the 9 channels look like 3 × 3 places."""
    model, x = nn.Sequential(nn.Conv2d(3, 9, 4, 4), nn.Flatten(2)), torch.randn(1, 3, 16, 16)
    with pytest.raises(ValueError, match="no map with places"):
        grid_of(model, "1", torch.randn(1, 9, 16), x)
    assert grid_of(model, "1", torch.randn(1, 16, 9), x).shape == (9, 4, 4)


def test_tokens_without_a_patch_convolution():
    """In the proportions of the image; of an image that is not square no square is guessed."""
    model, x = nn.Sequential(nn.Unfold(4, stride=4), nn.Flatten(), nn.Linear(48 * 32, 3)), torch.randn(1, 3, 16, 32)
    grid = grid_of(model, "0", torch.randn(1, 33, 5), x)
    assert (grid.shape, grid.prefix) == ((5, 4, 8), 1)
    with pytest.raises(ValueError, match="no map with places"):
        grid_of(model, "0", torch.randn(1, 16, 5), x)


def test_tokens_of_a_convolution_with_padding():
    """65 × 130 by strides of 4 is 17 × 33, neither in proportion nor a multiple."""
    model = nn.Sequential(nn.Conv2d(3, 4, 7, 4, 3), nn.Flatten(2), nn.Linear(561, 3))
    x = torch.randn(1, 3, 65, 130)
    assert grid_of(model, "1", torch.randn(1, 17 * 33, 4), x).shape == (4, 17, 33)


def test_tokens_in_the_order_of_windows():
    """Hiera sorts its tokens by windows: CAM and SAT look at the patch embedding, which is a convolution."""
    timm = pytest.importorskip("timm")
    options = {"img_size": 64, "stages": (1, 1, 1, 1), "embed_dim": 24, "num_heads": 1}
    model, x = timm.create_model("hiera_tiny_224", num_classes=3, **options).eval(), torch.randn(1, 3, 64, 64)
    assert list(explain.map_layers(model, x)) == ["patch_embed.proj"]
    with pytest.raises(
        ValueError, match=r"tokens in the order of Hiera's windows: that is no map .* Choose a convolution"
    ):
        explain.cam(model, x, layer="blocks.0")
    assert explain.sat(model, x, k=2).shape == (1, 64, 64)
