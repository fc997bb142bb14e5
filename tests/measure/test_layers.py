"""Gram matrices, bounds, ratios and comprehensibility, against their definitions."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from bort import audit, measure


@pytest.fixture
def net():
    return nn.Sequential(nn.Conv2d(2, 5, 3, groups=1), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 16, 4)).double()


def test_gram_is_the_papers(net):
    """G = WᵀW, all of its entries."""
    measured = measure.gram(net)
    w = net[0].weight.detach().flatten(1)
    g = w.T @ w
    torch.testing.assert_close(measured["0.weight"].diagonal.double(), g.diagonal(), rtol=1e-5, atol=1e-6)
    off = g[~torch.eye(18, dtype=torch.bool)]
    torch.testing.assert_close(measured["0.weight"].off_diagonal.double(), off, rtol=1e-5, atol=1e-6)


def test_gram_of_a_large_layer_is_sampled(net):
    sample = measure.gram(net, limit=5000)["3.weight"].off_diagonal
    whole = measure.gram(net)["3.weight"].off_diagonal
    assert len(sample) == 70 * 69 < len(whole), "all pairs of 70 columns"
    assert sample.std().item() == pytest.approx(whole.std().item(), rel=0.1)
    assert torch.isin(sample[:20].mul(1e5).round(), whole.mul(1e5).round()).all()


def test_bounds(net):
    measured = measure.bounds(net)["3.weight"]
    torch.testing.assert_close(measured.norms, net[3].weight.detach().norm(dim=1))
    assert measured.constant == measured.norms.max().item()


def test_ratio_is_the_audits(net):
    x = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    ratios = measure.reconstruction_ratio(net, x)
    assert ratios == {layer.name: layer.ratio for layer in audit(net, x)}
    w = net[0].weight.detach().flatten(1)
    patches = nn.functional.unfold(x, 3)
    error = patches - w.T @ (w @ patches)
    assert ratios["0.weight"] == pytest.approx((error.norm() / patches.norm()).item())


def test_comprehensibility_by_its_definition(net):
    """For each row the patches of largest w·z, and their cosines; against a loop over all patches of all images."""
    x = torch.randn(4, 2, 6, 6, dtype=torch.float64)
    measured = measure.comprehensibility(net, x, top=3)["0.weight"]
    w = net[0].weight.detach().flatten(1).numpy()
    z = nn.functional.unfold(x, 3).transpose(0, 1).flatten(1).numpy()
    activation = w @ z
    cosine = activation / np.linalg.norm(w, axis=1)[:, None] / np.linalg.norm(z, axis=0)
    bound = np.linalg.norm(w, axis=1).max() * np.linalg.norm(z, axis=0).max()
    for row in range(5):
        best = np.argsort(-activation[row])[:3]
        assert measured.cosine[row].item() == pytest.approx(cosine[row, best].mean())
        assert measured.claim[row].item() == pytest.approx(activation[row, best].mean() / bound)


def test_comprehensible_weights_are_recognised():
    """Weights that are patterns of the data have a cosine of 1; long ones claim more, and are no more similar."""
    patterns = torch.randn(6, 10)
    layer = nn.Linear(10, 6, bias=False)
    model = nn.Sequential(layer)
    with torch.no_grad():
        layer.weight.copy_(patterns / patterns.norm(dim=1, keepdim=True))
    inputs = patterns / patterns.norm(dim=1, keepdim=True)
    measured = measure.comprehensibility(model, inputs, top=1)["0.weight"]
    torch.testing.assert_close(measured.cosine, torch.ones(6))
    torch.testing.assert_close(
        measured.claim, torch.ones(6), msg="bounded weights, bounded patterns: the activation tells the truth"
    )
    with torch.no_grad():
        layer.weight[0] *= 10
    longer = measure.comprehensibility(model, inputs, top=1)["0.weight"]
    torch.testing.assert_close(longer.cosine, torch.ones(6))
    assert longer.claim[0] == pytest.approx(1)
    assert (longer.claim[1:] < 0.11).all(), "next to a weight ten times as long the others seem to see nothing"


def test_agreement_is_a_rank_correlation():
    layer = nn.Linear(2, 3, bias=False)
    with torch.no_grad():  # cosines with (1, 0): 1, 0.6, 0; activations in the opposite order
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 9.0]]))
    measured = measure.comprehensibility(nn.Sequential(layer), torch.tensor([[1.0, 0.0]]), top=1)["0.weight"]
    assert measured.cosine.tolist() == pytest.approx([1.0, 0.6, 0.0])
    assert measured.agreement == pytest.approx(0.5), "claims 1, 3 and 0 of 9"
    one = measure.comprehensibility(nn.Sequential(nn.Linear(2, 1)), torch.randn(1, 2))["0.weight"]
    assert math.isnan(one.agreement)


def test_floor_of_a_wide_layer():
    """An input without preferred directions loses the part outside the rows' span, even with orthonormal rows."""
    layer = nn.Linear(40, 10, bias=False)
    nn.init.orthogonal_(layer.weight)
    measured = audit(nn.Sequential(layer), torch.randn(5000, 40))["0.weight"]
    assert measured.floor == pytest.approx(math.sqrt(0.75))
    assert measured.ratio == pytest.approx(measured.floor, rel=0.02)
    assert audit(nn.Sequential(nn.Linear(3, 9)))["0.weight"].floor == 0


def test_bad_top(net):
    with pytest.raises(ValueError, match="top=0: must be 1 or more"):
        measure.comprehensibility(net, torch.randn(1, 2, 6, 6, dtype=torch.float64), top=0)


def test_no_agreement_where_there_is_nothing_to_rank():
    net = nn.Linear(3, 6, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.ones(6, 3))
    measured = measure.comprehensibility(nn.Sequential(net), torch.rand(5, 3))["0.weight"]
    assert math.isnan(measured.agreement)


def test_equal_values_share_their_rank():
    """Against scipy, with equal cosines (1, 1) and equal claims (1, 1 and 2, 2 of the bound)."""
    layer = nn.Linear(2, 5, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, 1.0], [0.0, 3.0], [2.0, 1.0]]))
    measured = measure.comprehensibility(nn.Sequential(layer), torch.tensor([[1.0, 0.0]]), top=1)["0.weight"]
    assert measured.cosine.unique().numel() == 4
    assert measured.claim.unique().numel() == 3
    expected = stats.spearmanr(measured.cosine, measured.claim).statistic
    assert measured.agreement == pytest.approx(expected)


def test_bad_inputs_are_refused():
    net = nn.Sequential(nn.Linear(3, 2))
    for measured in (measure.audit, measure.reconstruction_ratio, measure.comprehensibility):
        with pytest.raises(ValueError, match="NaN or Inf"):
            measured(net, torch.full((2, 3), torch.nan))
        with pytest.raises(ValueError, match="has no images in it"):
            measured(net, torch.empty(0, 3))
    with torch.no_grad():
        net[0].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"0\.weight has NaN or Inf in it"):
        measure.audit(net)


def test_the_smaller_gram_matrix(net):
    w = net[3].weight.detach()
    measured = measure.gram(net, smaller=True)["3.weight"]
    torch.testing.assert_close(measured.diagonal.double(), w.square().sum(dim=1), rtol=1e-5, atol=1e-6)
    assert len(measured.off_diagonal) == 4 * 3
