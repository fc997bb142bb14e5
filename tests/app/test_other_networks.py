"""Networks that are made otherwise than the paper's: other activation functions, one logit."""

import torch

from bort import nets
from bort.app import Explorer
from bort.app._edits import ChannelEdits
from bort.subject import of_models


def test_a_network_without_activations_of_the_rules():
    """Its signals are gradients."""
    torch.manual_seed(0)
    explorer = Explorer(of_models({"tanh": nets.create("lenet", activation="tanh")}, torch.rand(4, 1, 28, 28)))
    layer = explorer.top("tanh")
    assert explorer.trace("tanh", "test-0", layer).rule == "gradient"
    back, _ = explorer.inside.reconstruct("tanh", "test-0", layer, None, binary=True, edits=ChannelEdits())
    assert back.any()
    image, said = explorer.transplant("tanh", "test-0", "test-1", layer, 4, "none")
    assert image.shape == (1, 28, 28)
    explorer.index.start()
    assert explorer.index.wait(60)
    assert explorer.index.no_correlations == ""
    explorer.close()
