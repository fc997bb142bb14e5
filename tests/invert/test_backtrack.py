"""g: on nets computed by hand, against the paper's recursion in float64, and for every way to write a ReLU."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bort import nets
from bort.invert import Backtracker, memory_budget


def seeds(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Two(nn.Module):
    """y = B·relu(A·x)"""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 3, bias=False)
        self.b = nn.Linear(3, 2, bias=False)
        with torch.no_grad():
            self.a.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
            self.b.weight.copy_(torch.tensor([[1.0, -2.0, 5.0], [3.0, 1.0, 5.0]]))

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


@pytest.mark.parametrize(
    ("rule", "expected"),
    # x = (1, 2): a = (1, 2, −3), open are the first two. The seed (1, 0) comes to them as (1, −2, 5).
    [("guided", [1.0, 0.0]), ("gradient", [1.0, -2.0]), ("deconvolution", [1.0 - 5.0, -5.0])],
)
def test_by_hand(rule, expected):
    back = Backtracker(Two(), "b", rule)
    signal = back(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
    assert signal.tolist() == [expected]


def test_the_map_is_the_one_after_the_activation():
    """Of a ReLU's layer the features are what the ReLU lets through, and a seed passes the ReLU too."""
    back = Backtracker(Two(), "a")
    x = torch.tensor([[1.0, 2.0]])
    assert back.features(x).tolist() == [[1.0, 2.0, 0.0]]
    assert back(x, torch.tensor([[1.0, -1.0, 1.0]])).tolist() == [[1.0, 0.0]]
    assert back.reconstruct(x).tolist() == [[1.0, 2.0]]


class Net(nn.Module):
    """The same function with its ReLUs written in different ways: a style by name, or a function."""

    def __init__(self, style):
        super().__init__()
        torch.manual_seed(0)
        self.conv1 = nn.Conv2d(2, 5, 3, padding=1)
        self.conv2 = nn.Conv2d(5, 4, 3, stride=2, bias=False)
        self.conv3 = nn.Conv2d(4, 6, 2)
        self.head = nn.Linear(6, 3)
        self.style = style
        self.shared = nn.ReLU(inplace=style == "in-place module")

    def act(self, x):
        if callable(self.style):
            return self.style(x)
        if self.style in ("module", "in-place module"):
            return self.shared(x)
        if self.style == "in-place method":
            x.relu_()
            return x
        if self.style == "in-place functional":
            F.relu(x, inplace=True)
            return x
        calls = {"functional": F.relu, "torch": torch.relu, "method": by_method, "torch in place": torch.relu_}
        return calls[self.style](x)

    def forward(self, x):
        x = self.act(self.conv1(x))
        x = self.act(self.conv2(x))
        x = self.act(self.conv3(x))
        return self.head(x.amax(dim=(2, 3)))


def by_method(x):
    return x.relu()


STYLES = [
    *("module", "in-place module", "functional", "in-place functional"),
    *("torch", "torch in place", "method", "in-place method"),
]


def recursion(net, x, seed, rule):
    """The paper's equations, layer by layer: store where a > 0, then transposed convolutions and the rule."""
    with torch.no_grad():
        maps, a = [], x
        for conv in (net.conv1, net.conv2, net.conv3):
            a = conv(a)
            maps.append(a > 0)
            a = a.clamp(min=0)
        sizes = [x.shape[2:], maps[0].shape[2:], maps[1].shape[2:]]
        signal = seed
        for conv, positive, size in zip((net.conv3, net.conv2, net.conv1), maps[::-1], sizes[::-1], strict=True):
            passing = {"guided": positive & (signal > 0), "deconvolution": signal > 0, "gradient": positive}[rule]
            signal = signal * passing
            stride, padding = conv.stride[0], conv.padding[0]
            full = F.conv_transpose2d(signal, conv.weight, stride=stride)
            canvas = signal.new_zeros(*full.shape[:2], size[0] + 2 * padding, size[1] + 2 * padding)
            canvas[:, :, : full.shape[2], : full.shape[3]] = full
            signal = canvas[:, :, padding : padding + size[0], padding : padding + size[1]]
        return signal


@pytest.mark.parametrize("rule", ["guided", "deconvolution", "gradient"])
@pytest.mark.parametrize("style", STYLES)
def test_every_way_to_write_a_relu(style, rule):
    net = Net(style).double()
    x = seeds(3, 2, 10, 11)
    back = Backtracker(net, "conv3", rule)
    trace = back.trace(x)
    seed = seeds(*trace.features.shape, seed=1)
    torch.testing.assert_close(trace(seed), recursion(net, x, seed, rule))
    assert torch.equal(trace.outputs, net(x).detach())


def test_many_seeds_at_once():
    """S seeds for each of N images give what S × N single ones give, also in chunks."""
    net, x = Net("functional").double(), seeds(2, 2, 10, 10)
    trace = Backtracker(net, "conv3").trace(x)
    many = seeds(7, *trace.features.shape, seed=2)
    expected = torch.stack([trace(one) for one in many])
    torch.testing.assert_close(trace(many), expected)
    with memory_budget(backward=3 * trace.largest):
        torch.testing.assert_close(trace(many), expected)
    assert trace(many[:0]).shape == (0, *x.shape)


def test_batches_keep_to_the_budget():
    net, x = Net("functional").double(), seeds(7, 2, 10, 10)
    back = Backtracker(net, "conv3")
    one = back.trace(x[:1])
    assert one.largest == 5 * 10 * 10, "the output of conv1"
    assert [len(batch) for batch in back.batches(x)] == [7]
    with memory_budget(backward=10 * one.largest):
        assert [len(batch) for batch in back.batches(x, seeds=3)] == [3, 3, 1]
        assert [len(batch) for batch in back.batches(x, seeds=100)] == [1] * 7
    with memory_budget(kept=2 * one.total):
        assert [len(batch) for batch in back.batches(x)] == [2, 2, 2, 1]


def test_images_do_not_mix():
    net, x = Net("module").double(), seeds(3, 2, 10, 10)
    trace = Backtracker(net, "conv2").trace(x)
    seed = torch.zeros_like(trace.features)
    seed[1] = 1
    signal = trace(seed)
    assert signal[1].any()
    assert not signal[[0, 2]].any()


def state(model):
    return {
        "modes": [module.training for module in model.modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "weights": copy.deepcopy(model.state_dict()),
        "functions": [type(module) for module in model.modules()],
    }


def same(one, other):
    return str(one) == str(other)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training):
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Dropout(), nn.Conv2d(3, 2, 3))
    net.train(training)
    net[1].eval()
    net(torch.randn(2, 1, 8, 8)).sum().backward()
    before, x = state(net), torch.randn(2, 1, 8, 8)
    original = x.clone()
    Backtracker(net, "4").reconstruct(x)
    assert same(state(net), before)
    assert torch.equal(x, original)
    assert not x.requires_grad


def test_also_after_an_exception():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3)

        def forward(self, x):
            F.relu(self.conv(x))
            raise RuntimeError("broken")

    net = Broken().train()
    before = state(net)
    with pytest.raises(ValueError, match="the model fails with RuntimeError: broken"):
        Backtracker(net, "conv").reconstruct(torch.randn(1, 1, 5, 5))
    assert same(state(net), before)
    assert F.relu(torch.tensor([-1.0])).grad_fn is None, "no mode is left on"


def test_under_no_grad():
    net, x = Net("module").double(), seeds(1, 2, 10, 10)
    expected = Backtracker(net, "conv3").reconstruct(x)
    with torch.no_grad():
        assert torch.equal(Backtracker(net, "conv3").reconstruct(x), expected)


def test_smooth_activations_take_the_relus_place():
    """GELU: a signal passes, unscaled, where it and the activation's value are positive."""
    net = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 5)).double()
    x, seed = seeds(3, 4), seeds(3, 5, seed=1)
    trace = Backtracker(net, "2").trace(x)
    assert trace.smooth
    with torch.no_grad():
        signal = seed @ net[2].weight
        expected = (signal * (net[0](x) > 0) * (signal > 0)) @ net[0].weight
    torch.testing.assert_close(trace(seed), expected)


def test_smooth_activations_follow_the_rule_beside_a_relu():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 2)).double()
    x, seed = seeds(3, 4), seeds(3, 2, seed=1)
    trace = Backtracker(net, "4").trace(x)
    assert trace.smooth
    with torch.no_grad():
        signal = seed @ net[4].weight
        signal = (signal * (net[:4](x) > 0) * (signal > 0)) @ net[2].weight
        expected = (signal * (net[0](x) > 0) * (signal > 0)) @ net[0].weight
    torch.testing.assert_close(trace(seed), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layer", "smooth"),
    [
        ("timm/resnet18", "layer4", False),
        ("timm/vgg11", "features.18", False),
        ("timm/densenet121", "features.denseblock2", False),
        ("timm/deit_tiny_patch16_224", "blocks.11", True),
        ("timm/swin_tiny_patch4_window7_224", "layers.3", True),
        ("timm/convnext_atto", "stages.3", True),
    ],
)
def test_networks_of_timm(name, layer, smooth):
    """Skips, pools, norms, attention: signals come back, and the plain rule is autograd's gradient."""
    torch.manual_seed(0)
    net = nets.create(name, classes=4, image_size=64)
    x = torch.randn(2, 3, 64, 64)
    trace = Backtracker(net, layer).trace(x)
    assert trace.smooth == smooth
    signals = trace(torch.rand(3, *trace.features.shape))
    assert signals.shape == (3, *x.shape)
    assert signals.abs().sum() > 0
    plain = Backtracker(net, layer, "gradient").trace(x)
    leaf = x.clone().requires_grad_()
    outputs = []
    hook = dict(net.named_modules())[layer].register_forward_hook(lambda module, inputs, output: outputs.append(output))
    net.eval()(leaf)
    hook.remove()
    end = outputs[0] if torch.allclose(outputs[0], plain.features, atol=1e-5) else outputs[0].relu()
    (expected,) = torch.autograd.grad(end, leaf, torch.ones_like(end))
    torch.testing.assert_close(plain(torch.ones_like(plain.features)), expected, rtol=1e-3, atol=1e-5)


def test_acnn_small_by_its_named_layers():
    net = nets.create("acnn-small", width=0.05, narrowest=8)
    x = torch.rand(2, 1, 28, 28)
    for layer in ("conv1", "conv3", "conv5"):
        assert (Backtracker(net, layer).features(x) >= 0).all(), "a ReLU follows"
    assert (Backtracker(net, "conv2").features(x) < 0).any(), "none follows"
    torch.testing.assert_close(Backtracker(net, "conv5").features(x), net.features(x).detach())


def test_bad_input():
    net = Net("module")
    x = torch.randn(1, 2, 10, 10)
    with pytest.raises(ValueError, match="Net has no layer 'conv4'; there are 'conv3', 'conv2', 'conv1' and others"):
        Backtracker(net, "conv4")
    with pytest.raises(ValueError, match="rule='guidd' is unknown: choose one of guided"):
        Backtracker(net, "conv3", "guidd")
    back = Backtracker(net, "conv3")
    with pytest.raises(ValueError, match="NaN or Inf"):
        back.features(x * torch.nan)
    with pytest.raises(TypeError, match=r"floating-point numbers, not torch\.int64"):
        back.features(torch.zeros(1, 2, 10, 10, dtype=torch.long))
    with pytest.raises(ValueError, match="has no images in it"):
        back.features(x[:0])
    with pytest.raises(ValueError, match=r"the input is on cpu, the model on meta"):
        Backtracker(copy.deepcopy(net).to("meta"), "conv3").features(x)
    with pytest.raises(ValueError, match=r"a seed of shape \(1, 6\) does not fit the features \(1, 6, 3, 3\)"):
        back(x, torch.zeros(1, 6))
    net.unused = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="the layer 'unused' was not used"):
        Backtracker(net, "unused").features(x)
    with pytest.raises(ValueError, match=r"has no ReLU, GELU or SiLU .*use rule='gradient'"):
        Backtracker(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), "0", "guided").features(torch.randn(1, 2))
