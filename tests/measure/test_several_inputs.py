"""Weights that several modules use, and weights that are multiplied with several inputs."""

import pytest
import torch
from torch import nn

from bort import audit, invert, measure


class Attention(nn.Module):
    def __init__(self, key, value):
        super().__init__()
        torch.manual_seed(0)
        self.attention, self.key, self.value = nn.MultiheadAttention(4, 2, batch_first=True), key, value

    def forward(self, x):
        return self.attention(x, self.key(x), value=self.value(x))[0]


def same(x):
    return x


def other(x):
    return 7 * x.flip(1)


@pytest.mark.parametrize(("key", "value"), [(other, other), (same, other), (other, same)])
def test_cross_attention_has_no_ratio(key, value):
    """One weight is multiplied with the query, with the key and with the value, each with a part of it."""
    row = audit(Attention(key, value), torch.randn(3, 5, 4))["attention.in_proj_weight"]
    assert (row.ratio, row.cosine, row.claim, row.agreement) == (None, None, None, None)
    assert row.residual > 0


@pytest.mark.parametrize("again", [same, lambda x: x[:], lambda x: x.view(x.shape)])
def test_self_attention_has_one(again):
    """Also where it gets the same tensor under another name."""
    model, x = Attention(again, again), torch.randn(3, 5, 4)
    w, z = model.attention.in_proj_weight.detach(), x.reshape(-1, 4)
    expected = (z - z @ w.T @ w).norm() / z.norm()
    assert audit(model, x)["attention.in_proj_weight"].ratio == pytest.approx(expected.item(), rel=1e-4)


class Short(nn.MultiheadAttention):
    """As people write it."""

    def forward(self, x, key=None, mask=None):
        return super().forward(x, x, x, need_weights=False)


@pytest.mark.parametrize("arguments", [{}, {"key": None}, {"mask": None}], ids=str)
def test_a_subclass_that_is_called_with_the_query_alone(arguments):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.attention = Short(4, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, **arguments)[0]

    x = torch.randn(3, 5, 4)
    found, expected = audit(Model(), x), audit(Attention(same, same), x)
    assert found["attention.in_proj_weight"] == expected["attention.in_proj_weight"]


class Tied(nn.Module):
    """One weight in two layers, of which the first may be left out."""

    def __init__(self, *, uses_first):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.uses_first = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False), uses_first
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b((self.a(x) if self.uses_first else x).relu())


@pytest.mark.parametrize("uses_first", [True, False])
def test_all_uses_of_a_shared_weight_count_together(uses_first):
    model, x = Tied(uses_first=uses_first), torch.randn(20, 6)
    z = torch.cat([x, model.a(x).relu()]) if uses_first else x.relu()
    plain = nn.Linear(6, 6, bias=False)
    plain.weight = model.a.weight
    (row,), (expected,) = audit(model, x), audit(nn.Sequential(plain), z.detach())
    assert row.name == "a.weight"
    for number in ("ratio", "cosine", "claim", "agreement"):
        assert getattr(row, number) == pytest.approx(getattr(expected, number), rel=1e-5)
    for by_name in (measure.gram(model), measure.bounds(model), measure.comprehensibility(model, x)):
        assert list(by_name) == ["a.weight"]


def test_a_weight_that_is_also_used_transposed():
    """Its rows there are others: comprehensibility is that of the weight as the audit reads it."""
    encoder, decoder = nn.Conv2d(1, 4, 2, stride=2, bias=False), nn.ConvTranspose2d(4, 1, 2, stride=2, bias=False)
    decoder.weight = encoder.weight
    x = torch.randn(2, 1, 4, 4)
    alone = measure.comprehensibility(nn.Sequential(encoder), x)["0.weight"]
    both = measure.comprehensibility(nn.Sequential(encoder, decoder), x)["0.weight"]
    assert torch.equal(alone.cosine, both.cosine)


def test_the_callers_autocast_has_no_part_in_it():
    """It would round the Gram matrix, and Wᵀ(Wz), to the two digits of bfloat16."""
    model, x = nn.Sequential(nn.Linear(24, 48, bias=False), nn.ReLU(), nn.Linear(48, 3)), torch.rand(8, 24)
    nn.init.orthogonal_(model[0].weight)
    (first, _), ratio = audit(model, x), invert.reconstruct_layer(model, x, "0").ratio
    grams, cosine = measure.gram(model), measure.comprehensibility(model, x)["0.weight"].cosine
    with torch.autocast("cpu", torch.bfloat16):
        (inside, _), ratio_inside = audit(model, x), invert.reconstruct_layer(model, x, "0").ratio
        grams_inside, cosine_inside = measure.gram(model), measure.comprehensibility(model, x)["0.weight"].cosine
    assert inside == first
    assert inside.residual < 1e-5
    assert torch.equal(ratio_inside, ratio)
    assert torch.equal(cosine_inside, cosine)
    for name in grams:
        assert torch.equal(grams_inside[name].off_diagonal, grams[name].off_diagonal)
