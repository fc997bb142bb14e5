"""Models that recompute their activations in the backward pass, where no rule is at work: they are refused with a remedy."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

from bort import explain, invert
from tests.invert.test_backtrack import seeds


class Recomputing(nn.Module):
    """As timm's ResNets: the parts of a stage are called one by one, and not the stage."""

    def __init__(self, *, reentrant):
        super().__init__()
        torch.manual_seed(0)
        self.grad_checkpointing, self.reentrant = True, reentrant
        self.stem = nn.Conv2d(1, 4, 3)
        self.stage = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
        self.last, self.head = nn.Conv2d(4, 4, 3), nn.Linear(4, 3)

    def set_grad_checkpointing(self, enable=True):
        self.grad_checkpointing = enable

    def forward(self, x):
        x = self.stem(x)
        if self.grad_checkpointing:
            x = checkpoint_sequential(self.stage, 2, x, use_reentrant=self.reentrant)
        else:
            x = self.stage(x)
        return self.head(self.last(x).relu().mean(dim=(2, 3)))


REMEDY = r"gradient checkpointing.*model\.set_grad_checkpointing\(False\)"


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_remedy_is_named(reentrant):
    net, x = Recomputing(reentrant=reentrant).double().eval(), seeds(2, 1, 8, 8)
    for ask in (
        lambda: invert.reconstruct(net, x, "last"),
        lambda: invert.decompose(net, x, "stage.2", 2),
        lambda: explain.sat(net, x, layer="last", k=2),
        lambda: invert.Backtracker(net, "stage").trace(x),
    ):
        with pytest.raises(ValueError, match=REMEDY):
            ask()
    net.set_grad_checkpointing(False)
    assert invert.reconstruct(net, x, "stage").any()


def test_slopes():
    """With rule "gradient" nothing differs when it is recomputed, unless the model itself does so."""
    net, x = Recomputing(reentrant=False).double().eval(), seeds(2, 1, 8, 8)
    maps = explain.cam(net, x, layer="stage.2")
    net.set_grad_checkpointing(False)
    torch.testing.assert_close(maps, explain.cam(net, x, layer="stage.2"))
    with pytest.raises(ValueError, match=r"the layer 'net\.stage' was not used for this input$"):
        invert.Backtracker(Unused(net), "net.stage").trace(x)


class Unused(nn.Module):
    """Recomputes nothing."""

    def __init__(self, net):
        super().__init__()
        self.net, self.own = net, nn.Linear(64, 3).double()

    def forward(self, x):
        return self.own(x.flatten(1)).relu()
