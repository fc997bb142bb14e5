"""RISE against its expectation for a linear model, its masks, and its chunks."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bort import explain, invert


def test_rise_converges_to_the_analytic_map():
    """For a linear model A_p = Σ_q w_q x_q E[m_q m_p] / p, with the masks' second moment computed from their definition."""
    size, cells, keep = 6, 3, 0.5
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(size * size, 2, bias=False)).double()
    x = torch.rand(1, 1, size, size, dtype=torch.float64)
    basis = torch.eye(cells * cells, dtype=torch.float64).view(-1, 1, cells, cells)
    enlarged = F.interpolate(basis, [(cells + 1) * 2] * 2, mode="bilinear", align_corners=False)[:, 0]
    moment = torch.zeros(size * size, size * size, dtype=torch.float64)
    for row in range(2):
        for column in range(2):
            b = enlarged[:, row : row + size, column : column + size].reshape(cells * cells, -1)
            mean = keep * b.sum(dim=0)
            moment += (torch.outer(mean, mean) + keep * (1 - keep) * b.T @ b) / 4
    expected = (net[1].weight[1] * x.flatten()) @ moment / keep
    maps = explain.rise(net, x, 1, masks=60_000, cells=cells, keep=keep, score="logit")
    assert (maps.flatten() - expected).norm() / expected.norm() < 0.03


class Recorder(nn.Module):
    """Keeps the images that it is given: of a white image, these are the masks."""

    def __init__(self):
        super().__init__()
        self.images = []

    def forward(self, x):
        self.images.append(x.clone())
        return torch.zeros(len(x), 2)


def test_masks():
    model = Recorder()
    explain.rise(model, torch.ones(1, 1, 30, 41), masks=500, keep=0.3)
    masks = torch.cat(model.images)[-500:]
    assert masks.shape == (500, 1, 30, 41)
    assert 0 <= masks.min() < masks.max() <= 1 + 1e-6
    assert masks.mean().item() == pytest.approx(0.3, abs=0.01)


def test_chunks_and_seeds(net, x):
    whole = explain.rise(net, x, masks=50, cells=4)
    assert not torch.equal(explain.rise(net, x, masks=50, cells=4, seed=1), whole)
    calls = []
    one = invert.Backtracker(net, "conv5", "gradient").trace(x[:1])
    with explain.memory_budget(forward=7 * one.largest):
        chunked = explain.rise(net, x, masks=50, cells=4, progress=lambda *call: calls.append(call))
    assert calls[0] == (7, 150), "masks times images"
    assert calls[-1] == (150, 150)
    torch.testing.assert_close(chunked, whole)


def test_a_score_that_no_mask_changes_gives_a_constant_map(net, x):
    """A head that starts at 0: what the masks leave is not an explanation."""
    head = nn.Linear(10, 10).to(x.dtype)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    maps = explain.rise(nn.Sequential(net, head), x, masks=40)
    torch.testing.assert_close(maps, torch.full_like(maps, 0.1))
    assert explain.rise(net, x, masks=40).flatten(1).std(dim=1).min() > 0
