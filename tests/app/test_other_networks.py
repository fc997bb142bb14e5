"""Networks that are made otherwise than the paper's: other activation functions, one logit."""

import time

import numpy as np
import pytest
import torch
from torch import nn

from bort import nets
from bort.app import Explorer
from bort.app._channel import ChannelFacts
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
    image, _ = explorer.transplant("tanh", "test-0", "test-1", layer, 4, "none")
    assert image.shape == (1, 28, 28)
    explorer.index.start()
    assert explorer.index.wait(60)
    assert explorer.index.no_correlations == ""
    explorer.close()


class OneLogit(nn.Module):
    """Above 0 for bright images; or, of two logits, the second above the first."""

    def __init__(self, logits):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.logits = nn.Conv2d(1, 4, 3), logits

    def forward(self, x):
        z = 10 * self.conv(x).relu().mean(dim=(1, 2, 3))[:, None] + 30 * x.mean(dim=(1, 2, 3))[:, None] - 16
        return z if self.logits == 1 else torch.cat([torch.zeros_like(z), z], dim=1)


@pytest.fixture
def alike():
    """A network with one logit, and one with two that says the same."""
    x = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    images, labels = torch.cat([0.5 * x, 0.5 + 0.5 * x]), torch.arange(16) // 8
    explorer = Explorer(of_models({"one": OneLogit(1), "two": OneLogit(2)}, images, labels=labels))
    yield explorer
    explorer.close()


def test_one_logit_says_what_two_say(alike):
    alike.index.start()
    assert alike.index.wait(60)
    one, two = alike.index.runs["one"], alike.index.runs["two"]
    assert set(one.classes.tolist()) == {0, 1}
    assert one.classes.tolist() == two.classes.tolist()
    np.testing.assert_allclose(one.probabilities, two.probabilities, atol=1e-6)
    np.testing.assert_allclose(one.of_label, two.of_label, atol=1e-6)
    assert not alike.index.message
    for number in range(16):
        said, expected = (alike.predict(run, f"test-{number}") for run in ("one", "two"))
        assert [(c["class"], c["name"]) for c in said] == [(c["class"], c["name"]) for c in expected]
        assert said[0]["probability"] == pytest.approx(expected[0]["probability"], abs=1e-6)


@pytest.mark.parametrize(("names", "shown"), [((), "1"), (("dark", "bright"), "bright")])
def test_the_menu_of_classes_has_those_that_logits_are_for(names, shown):
    explorer = Explorer(of_models(OneLogit(1), torch.rand(4, 1, 8, 8), classes=names))
    assert explorer.info()["classes"] == [shown]
    assert explorer.inside.channels("model", "test-0", "conv", rank="effect", target=0)["target"] == shown
    two = Explorer(of_models(OneLogit(2), torch.rand(4, 1, 8, 8), classes=names))
    assert two.info()["classes"] == list(names or ("0", "1"))
    explorer.close()
    two.close()


def test_beside_one_with_more_logits_no_class_can_be_chosen(alike):
    """The first logit is for class 1 in one network and for class 0 in the other one."""
    assert alike.info()["classes"] == []


def test_what_is_explained_is_the_logit_which_is_for_class_1(alike):
    dark = next(f"test-{n}" for n in range(16) if alike.predict("one", f"test-{n}")[0]["class"] == 0)
    assert alike.explained("one", dark, None) == alike.explained("one", dark, 0) == 1
    assert (alike.explained("two", dark, None), alike.explained("two", dark, 1)) == (0, 1)
    sheets = [alike.inside.channels(run, dark, "conv", rank="effect", target=t) for run, t in (("one", 0), ("two", 1))]
    assert [sheet["target"] for sheet in sheets] == ["1", "1"]
    for one, two in zip(*(sheet["channels"] for sheet in sheets), strict=True):
        assert one["effect"] == pytest.approx(two["effect"], rel=1e-4)
    changed = alike.inside.edit("one", dark, "conv", None, binary=True, edits=ChannelEdits.parse("*:0"))
    assert {shown["class"] for shown in changed.classes} == {0, 1}
    atlas = atlas_of(alike, "one", "conv")
    strongest = int(atlas.values.sum(axis=0).argmax())
    (change,) = alike.portraits("one", "conv", strongest, ChannelFacts(atlas, "conv", strongest)).changes
    assert (change["class"], change["name"]) == (1, "1")


def atlas_of(explorer, run, layer):
    """The layer's atlas once it knows all images."""
    job = explorer.atlases(run, layer)
    while job.state in ("waiting", "running"):
        time.sleep(0.01)
    assert job.state == "done", job.message
    return job.atlas
