"""What the rest of a model computes with other features: against plain passes in which a hook replaces a module's output."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bort import invert, nets
from tests.invert.test_backtrack import Net, seeds


def plain(net, module, x, features):
    """The logits of a plain pass, one map after another, with the module's output replaced."""
    rows = []
    for one, own in zip(features, x.expand(len(features), *x.shape[1:]), strict=True):
        handle = net.get_submodule(module).register_forward_hook(lambda *_, one=one: one[None].clone())
        with torch.no_grad():
            rows.append(net(own[None]))
        handle.remove()
    return torch.cat(rows)


class Block(nn.Module):
    """A residual block whose skip goes around the layer; the second one by concatenation, which cannot broadcast."""

    def __init__(self, concatenates):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.conv, self.act = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(inplace=True)
        self.concatenates = concatenates
        self.head = nn.Linear(8 if concatenates else 4, 5)

    def forward(self, x):
        x = self.act(self.stem(x))
        z = self.act(self.conv(x))
        x = torch.cat([x, z], dim=1) if self.concatenates else x + z
        return self.head(x.mean(dim=(2, 3)))


class Twice(nn.Module):
    """One layer that is used twice: its features are those of the last use."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.layer, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 5)

    def forward(self, x):
        x = self.stem(x)
        return self.head((self.layer(torch.tanh(self.layer(x))) + x).mean(dim=(2, 3)))


def timm_net(name, **options):
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=5, **options)


# A net, its layer, and the module behind which the features are: the activation function's if one follows directly.
NETS = {
    "acnn": (lambda: nets.create("acnn-small", width=0.02, channels=3, image_size=32), "conv4", None),
    "residual": (lambda: Block(concatenates=False), "conv", None),
    "concatenated": (lambda: Block(concatenates=True), "conv", None),
    "used twice": (Twice, "layer", None),
    "resnet, batch norm": (lambda: timm_net("resnet10t"), "layer2.0.bn1", "layer2.0.act1"),
    "resnet, block": (lambda: timm_net("resnet10t"), "layer1", "layer1"),
    "ViT": (
        lambda: timm_net("vit_tiny_patch16_224", img_size=32, embed_dim=24, depth=3, num_heads=3),
        "blocks.1",
        "blocks.1",
    ),
    "NHWC": (
        lambda: timm_net(
            "swin_tiny_patch4_window7_224",
            img_size=32,
            window_size=4,
            embed_dim=12,
            depths=(1, 1),
            num_heads=(1, 2),
        ),
        "layers.0",
        "layers.0",
    ),
    "densenet": (
        lambda: timm_net("densenet121", growth_rate=4, block_config=(2, 2)),
        "features.denseblock1.denselayer1",
        "features.denseblock1.denselayer1",
    ),
}


def made(name):
    make, layer, module = NETS[name]
    return make().double().eval(), layer, module


def images(count):
    return seeds(count, 3, 32, 32)


@pytest.mark.parametrize("name", [name for name, (_, _, module) in NETS.items() if module])
def test_against_a_plain_pass_with_a_hook(name):
    """One map for each of three images, and seven maps of one image."""
    net, layer, module = made(name)
    x = images(3)
    features = invert.Backtracker(net, layer, "gradient").features(x)
    changed = features * seeds(*features.shape, seed=1)
    torch.testing.assert_close(invert.forward_from(net, layer, x, changed), plain(net, module, x, changed))
    many = features[:1] * seeds(7, *features.shape[1:], seed=2)
    torch.testing.assert_close(invert.forward_from(net, layer, x[:1], many), plain(net, module, x[:1], many))


@pytest.mark.parametrize("name", list(NETS))
def test_its_own_features_give_its_own_logits(name):
    net, layer, _ = made(name)
    x = images(2)
    trace = invert.Backtracker(net, layer, "gradient").trace(x)
    torch.testing.assert_close(trace.forward(trace.features), net(x).detach())
    single = invert.Backtracker(net, layer, "gradient").trace(x[:1])
    many = single.forward(single.features.expand(3, *single.features.shape[1:]))
    torch.testing.assert_close(many, net(x[:1]).detach().expand(3, -1))


@pytest.mark.parametrize("name", list(NETS))
def test_many_maps_of_one_image_are_as_one_by_one(name):
    """From the layer on, and in batches of one: the same."""
    net, layer, _ = made(name)
    before = copy.deepcopy(net.state_dict()), {n: m.training for n, m in net.named_modules()}
    trace = invert.Backtracker(net, layer, "gradient").trace(images(1))
    many = trace.features * seeds(5, *trace.features.shape[1:], seed=3)
    expected = torch.cat([trace.forward(one[None]) for one in many])
    torch.testing.assert_close(trace.forward(many), expected)
    with invert.memory_budget(forward=1):
        torch.testing.assert_close(trace.forward(many), expected)
    for key, value in net.state_dict().items():
        assert torch.equal(value, before[0][key])
    assert {n: m.training for n, m in net.named_modules()} == before[1]
    assert not any("forward" in m.__dict__ or m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_the_part_before_the_layer_runs_once():
    net, layer, _ = made("resnet, block")
    trace = invert.Backtracker(net, layer, "gradient").trace(images(1))
    trace.forward(trace.features.repeat(2, 1, 1, 1))
    ran = []
    for name in ("conv1.3", "layer4.0.conv1"):
        net.get_submodule(name).register_forward_pre_hook(lambda *_, name=name: ran.append(name))
    trace.forward(trace.features.repeat(4, 1, 1, 1))
    assert ran == ["layer4.0.conv1"]


@pytest.mark.parametrize("concatenates", [False, True])
def test_what_goes_around_the_layer_is_the_image_s(concatenates):
    """Written out: the skip is the stem's, whatever the features are."""
    net, x = Block(concatenates).double(), images(1)
    z = seeds(6, 4, 30, 30).abs()
    around = F.relu(net.stem(x)).expand(6, -1, -1, -1)
    together = torch.cat([around, z], dim=1) if concatenates else around + z
    torch.testing.assert_close(invert.forward_from(net, "conv", x, z), net.head(together.mean(dim=(2, 3))).detach())


def test_only_the_last_use_of_a_layer_is_replaced():
    net, x = Twice().double(), images(2)
    z = seeds(2, 4, 30, 30)
    expected = net.head((z + net.stem(x)).mean(dim=(2, 3))).detach()
    torch.testing.assert_close(invert.forward_from(net, "layer", x, z), expected)


@pytest.mark.parametrize("style", ["in-place method", "in-place functional", "in-place module", "torch in place"])
def test_an_activation_in_place(style):
    """The model may go on with the tensor that it handed to the activation function."""
    net, x = Net(style).double(), seeds(1, 2, 10, 10)
    features = invert.Backtracker(net, "conv2").features(x)
    for count in (1, 3):
        z = seeds(count, *features.shape[1:]).abs()
        kept = z.clone()
        expected = net.head(net.act(net.conv3(z.clone())).amax(dim=(2, 3))).detach()
        torch.testing.assert_close(invert.forward_from(net, "conv2", x, z), expected)
        assert torch.equal(z, kept), "what is handed in stays as it is"


def test_tokens_without_a_place_stay():
    net, layer, _ = made("ViT")
    trace = invert.Backtracker(net, layer, "gradient").trace(images(1))
    features = trace.with_maps(torch.zeros_like(trace.maps).repeat(2, 1, 1, 1))
    assert torch.equal(features[:, :1], trace.features[:, :1].expand(2, -1, -1))
    assert not features[:, 1:].any()
    torch.testing.assert_close(trace.with_maps(trace.maps), trace.features)


def test_features_that_do_not_fit():
    net, layer, _ = made("residual")
    trace = invert.Backtracker(net, layer).trace(images(2))
    with pytest.raises(
        ValueError, match=r"features of shape \(3, 4, 30, 30\) do not fit in the place of \(2, 4, 30, 30\)"
    ):
        trace.forward(trace.features[[0, 1, 0]])
