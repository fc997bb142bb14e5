"""Heads with a single logit, and scores of one's own."""

import pytest
import torch
from torch import nn

from bort import explain, measure


@pytest.fixture
def binary():
    """Its logit is the sum of the upper left corner, less a constant."""

    class Corner(nn.Module):
        def forward(self, x):
            return x[:, :, :4, :4].sum(dim=(1, 2, 3))[:, None] - 2

    return Corner()


@pytest.fixture
def images():
    return torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_rise_sees_what_the_network_sees(binary, images):
    """The softmax of one logit is 1, whatever the image: every network would have the same map."""
    maps = explain.rise(binary, images, masks=400, cells=4)
    inside, outside = maps[:, :4, :4].mean(dim=(1, 2)), maps[:, 4:, 4:].mean(dim=(1, 2))
    assert (inside > 1.1 * outside).all()
    by_function = explain.rise(binary, images, masks=400, cells=4, score=lambda logits, classes: logits[:, 0].sigmoid())
    torch.testing.assert_close(maps, by_function)


def test_probabilities_of_deletion(binary, images):
    maps = images[:, 0]
    curves = measure.deletion_insertion(binary, images, maps, steps=8, score="probability")
    torch.testing.assert_close(curves.deletion_curves[:, 0], binary(images)[:, 0].sigmoid())
    assert curves.deletion_curves.std(dim=1).min() > 0
    at_step = measure.at_step(binary, images, maps, 3, steps=8, score="probability")
    torch.testing.assert_close(at_step.scores, curves.deletion_curves[:, 3])


def test_a_score_of_ones_own():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).double()
    x, maps, classes = torch.randn(4, 1, 8, 8).double(), torch.rand(4, 8, 8), torch.tensor([0, 2, 1, 1])

    def margin(logits, classes):
        """The class's logit less the largest other one."""
        others = logits.scatter(1, classes[:, None], -torch.inf)
        return logits.gather(1, classes[:, None])[:, 0] - others.amax(dim=1)

    curves = measure.deletion_insertion(net, x, maps, classes, steps=5, score=margin)
    torch.testing.assert_close(curves.deletion_curves[:, 0], margin(net(x), classes).detach())
    torch.testing.assert_close(curves.insertion_curves[:, -1], margin(net(x), classes).detach())
    for step in (0, 2, 5):
        one = measure.at_step(net, x, maps, step, steps=5, target=classes, score=margin, which="insertion")
        torch.testing.assert_close(one.scores, curves.insertion_curves[:, step])


def test_unknown_scores():
    x = torch.rand(1, 1, 4, 4)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(ValueError, match=r"score='prob': choose .* or give a function"):
        measure.deletion_insertion(net, x, x[:, 0], steps=2, score="prob")
    with pytest.raises(ValueError, match=r"score='prob': choose .* or give a function"):
        explain.rise(net, x, masks=2, score="prob")
