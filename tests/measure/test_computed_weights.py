"""Weights that layers compute, and weights that models use without calling the layer."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from bort import audit, measure


def ratio(w, z):
    """Of a matrix (out, in) and inputs (samples, in)."""
    return ((z - z @ w.T @ w).norm() / z.norm()).item()


@pytest.mark.parametrize(
    "parametrized",
    [
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
        pytest.param(nn.utils.weight_norm, marks=pytest.mark.filterwarnings("ignore:.*weight_norm")),
        pytest.param(nn.utils.spectral_norm, marks=pytest.mark.filterwarnings("ignore:.*spectral_norm")),
    ],
)
def test_parametrized_layers(parametrized):
    model, x = (
        nn.Sequential(nn.Linear(4, 6), nn.ReLU(), parametrized(nn.Linear(6, 5))).double(),
        torch.rand(8, 4).double(),
    )
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    table = audit(model, x)
    assert [layer.name for layer in table] == ["0.weight", "2.weight"]
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), "nothing has been stepped"
    model.eval()
    with torch.no_grad():
        z = model[:2](x)
        model(x)
        w = model[2].weight
        assert table["2.weight"].sigma[1] == pytest.approx(torch.linalg.svdvals(w).max().item(), rel=1e-6)
        assert table["2.weight"].ratio == pytest.approx(ratio(w, z), rel=1e-6)
    assert table["2.weight"].cosine is not None
    assert measure.bounds(model)["2.weight"].constant == pytest.approx(w.norm(dim=1).max().item())


def test_a_convolution_that_pads_by_itself():
    """timm's tf_… networks pad inside forward, as much as the input needs: here to a kernel that is larger than the input."""
    layers = pytest.importorskip("timm.layers")
    layer, x = layers.Conv2dSame(2, 4, 5, stride=2, bias=False).double(), torch.randn(3, 2, 3, 3).double()
    w, z = layer.weight.detach().flatten(1), F.unfold(x, 5, stride=2, padding=2).mT.flatten(0, 1)
    with torch.no_grad():
        torch.testing.assert_close(z @ w.T, layer(x).flatten(2).mT.flatten(0, 1))
    (row,) = audit(layer, x)
    assert row.ratio == pytest.approx(ratio(w, z), rel=1e-6)
    assert row.cosine is not None


def test_a_standardized_convolution():
    """timm's StdConv2d stores one weight and convolves with another."""
    layers = pytest.importorskip("timm.layers")
    layer, x = layers.StdConv2d(2, 4, 3, padding=0).double(), torch.randn(2, 2, 6, 6).double()
    calls = []
    layer.register_forward_hook(lambda *_: calls.append(1))
    nn.init.normal_(layer.weight, mean=3, std=0.01)
    flat = layer.weight.detach().flatten(1)
    w = (flat - flat.mean(dim=1, keepdim=True)) / (flat.var(dim=1, keepdim=True, correction=0) + layer.eps).sqrt()
    (row,) = audit(layer)
    assert not calls, "the user's hooks are not called by a look at the weight"
    assert row.sigma == pytest.approx((*(value.item() for value in torch.linalg.svdvals(w).aminmax()),), rel=1e-6)
    (row,) = audit(layer, x)
    assert row.ratio == pytest.approx(ratio(w, F.unfold(x, 3).transpose(1, 2).reshape(-1, 18)), rel=1e-6)


class Functional(nn.Module):
    """Multiplies with the weights of layers that it never calls, as torchvision's Swin does."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3, bias=False)

    def forward(self, x):
        return F.linear(F.relu(F.linear(x, self.first.weight, self.first.bias)), self.second.weight)


@pytest.mark.parametrize("shape", [(5, 4), (2, 5, 4)])
def test_weights_used_without_their_layers(shape):
    model, x = Functional(), torch.randn(shape)
    table = audit(model, x)
    z = F.relu(model.first(x)).detach().reshape(-1, 6)
    assert table["first.weight"].ratio == pytest.approx(ratio(model.first.weight.detach(), x.reshape(-1, 4)), rel=1e-4)
    assert table["second.weight"].ratio == pytest.approx(ratio(model.second.weight.detach(), z), rel=1e-4)


@pytest.mark.parametrize("first", [True, False])
def test_the_out_projection_of_attention(first):
    """Its input is what attention gives with the identity in its place."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=first)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    model, x = Attention().eval(), torch.randn(3, 5, 4)
    table = audit(model, x)
    w = model.attention.out_proj.weight.detach().clone()
    with torch.no_grad():
        model.attention.out_proj.weight.copy_(torch.eye(4))
        nn.init.zeros_(model.attention.out_proj.bias)
        z = model(x).reshape(-1, 4)
    assert table["attention.out_proj.weight"].ratio == pytest.approx(ratio(w, z), rel=1e-4)
    assert table["attention.in_proj_weight"].ratio is not None


@pytest.mark.parametrize("name", ["swin_t", "vit_b_16"])
def test_every_layer_of_torchvisions_transformers_has_a_ratio(name):
    models = pytest.importorskip("torchvision.models")
    if name == "swin_t":
        model = models.SwinTransformer([4, 4], 12, [1, 1], [2, 2], [4, 4])
    else:
        model = models.VisionTransformer(32, 8, 2, 2, 12, 24)
    table = audit(model, torch.randn(1, 3, 32, 32))
    assert [layer.name for layer in table if layer.ratio is None] == []
