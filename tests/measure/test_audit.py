"""The audit against numpy-style formulas on weights small enough to check by hand."""

import json
import math

import pytest
import torch
from torch import nn

from bort import audit, penalty
from bort.layers import layer_inputs, linear_map
from bort.nets import LeNet


def test_numbers_of_one_layer():
    layer = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 1.0], [4.0, 0.0]]))
    (row,) = audit(nn.Sequential(layer))
    assert (row.name, row.kind, row.shape, row.invertible) == ("0.weight", "linear", (3, 2), True)
    assert row.sigma == pytest.approx((1, 5))
    assert row.row_norms == pytest.approx((1, 4))
    assert row.gram_diagonal == pytest.approx(13)  # diag(25, 1)
    assert row.gram_off_diagonal == pytest.approx(0, abs=1e-9)
    assert row.residual == pytest.approx(math.sqrt((24**2 + 0) / 2))
    assert row.ratio is None


def test_off_diagonal_of_the_gram_matrix():
    layer = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.5], [0.0, 1.0]]))
    (row,) = audit(layer)
    assert row.gram_off_diagonal == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(5, 7), (4, 3, 5)),
        (nn.Conv1d(4, 3, 3, stride=2), (2, 4, 9)),
        (nn.Conv2d(4, 6, 3, padding=1, dilation=2, groups=2), (2, 4, 8, 8)),
        (nn.Conv2d(4, 4, 2, stride=2, padding="valid", padding_mode="reflect"), (2, 4, 8, 8)),
        (nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
    ],
    ids=str,
)
def test_ratio_is_measured_on_what_the_layer_receives(layer, shape):
    """The patches times the matrix are the layer's own output, and the ratio is the paper's on those patches."""
    x = torch.randn(shape)
    linear = linear_map("weight", layer.weight, layer)
    w = penalty.matrices(layer.weight.detach(), blocks=linear.blocks)
    z = torch.cat(list(layer_inputs(layer, x, linear)), dim=-1)
    output = layer(x) - layer.bias.view(-1, *[1] * (x.ndim - 2 if not isinstance(layer, nn.Linear) else 0))
    if isinstance(layer, nn.Linear):
        expected = output.reshape(-1, 7).T
    else:
        expected = output.flatten(2).transpose(0, 1).reshape(layer.out_channels, -1)
    torch.testing.assert_close((w @ z).reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
    ratio = ((z - w.mT @ (w @ z)).norm() / z.norm()).item()
    assert audit(layer, x)["weight"].ratio == pytest.approx(ratio, rel=1e-4)


def test_transposed_convolution_reads_pixels():
    layer, x = nn.ConvTranspose2d(3, 2, 2), torch.randn(2, 3, 4, 4)
    w = layer.weight.detach().reshape(3, -1).T
    z = x.permute(1, 0, 2, 3).reshape(3, -1)
    row = audit(layer, x)["weight"]
    assert row.shape == (8, 3)
    assert row.ratio == pytest.approx(((z - w.T @ (w @ z)).norm() / z.norm()).item(), rel=1e-4)


def test_an_orthogonal_tall_layer_loses_nothing():
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(4, 6))
    plain = nn.Linear(4, 6)
    with torch.no_grad():
        plain.weight.copy_(layer.weight)
    row = audit(plain, torch.randn(9, 4))["weight"]
    assert row.ratio == pytest.approx(0, abs=1e-5)
    assert row.sigma == pytest.approx((1, 1), abs=1e-5)


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[1].eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def refuse(*_):
        raise RuntimeError("stop")

    audit(model, torch.randn(5, 4))
    handle = model[3].register_forward_hook(refuse)
    with pytest.raises(ValueError, match="RuntimeError: stop"):
        audit(model, torch.randn(5, 4))
    handle.remove()
    assert [m.training for m in model] == [True, False, True, True]
    assert all(not m._forward_pre_hooks for m in model.modules())
    assert all(p.grad is None for p in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])


def test_half_precision_and_attention_models():
    assert audit(nn.Linear(4, 3).bfloat16(), torch.randn(5, 4).bfloat16())["weight"].ratio > 0

    class Attention(nn.Module):
        def __init__(self, **options):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, **options)

        def forward(self, x):
            other = x[..., : self.attention.kdim]
            return self.attention(query=x, key=other, value=other)[0]

    x = torch.randn(3, 2, 4)
    assert audit(Attention(), x)["attention.in_proj_weight"].ratio > 0
    separate = Attention(kdim=3, vdim=3)
    w, z = separate.attention.k_proj_weight.detach(), x[..., :3].reshape(-1, 3)
    expected = (z - z @ w.T @ w).norm() / z.norm()
    assert audit(separate, x)["attention.k_proj_weight"].ratio == pytest.approx(expected.item(), rel=1e-4)


def test_a_weight_tied_across_modules_counts_the_inputs_of_both():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    x = torch.randn(6, 4)
    (row,) = audit(nn.Sequential(first, second), x)
    w = first.weight.detach()
    z = torch.cat([x, first(x).detach()])
    assert row.ratio == pytest.approx(((z - z @ w.T @ w).norm() / z.norm()).item(), rel=1e-4)


def test_shared_layers_are_listed_once_and_count_every_use():
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    x = torch.randn(6, 4)
    (row,) = audit(model, x)
    w = shared.weight.detach()
    z = torch.cat([x, model[1](shared(x)).detach()])
    assert row.ratio == pytest.approx(((z - z @ w.T @ w).norm() / z.norm()).item(), rel=1e-4)


def test_layers_by_name():
    model = LeNet()
    layers = audit(model)
    names = ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight", "head.weight"]
    assert [layer.name for layer in layers] == names
    assert layers["fc1.weight"] is layers.layers[2]
    with pytest.raises(KeyError, match=r"no layer 'fc9'; there are conv1.weight"):
        layers["fc9"]


def test_as_json():
    layers = audit(LeNet(), torch.rand(2, 1, 28, 28))
    rows = json.loads(json.dumps(layers.to_dict()))
    assert [row["name"] for row in rows] == [layer.name for layer in layers]
    assert rows[0]["ratio"] == layers["conv1.weight"].ratio
    one_row = audit(nn.Sequential(nn.Linear(3, 1)), torch.rand(5, 3))
    assert math.isnan(one_row["0.weight"].agreement)
    assert one_row.to_dict()[0]["agreement"] is None
