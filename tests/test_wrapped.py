"""Models inside torch.compile and DataParallel: looked at as the model that is wrapped."""

import pytest
import torch
from torch import nn

from bort import audit, explain, invert, measure


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU()),
        nn.Conv2d(4, 4, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    ).eval()


def compiled(model):
    return torch.compile(model, backend="eager")


def a_compiled_part(model):
    model[0] = compiled(model[0])
    return model


def compiled_in_place(model):
    model.compile(backend="eager")
    return model


def twice(model):
    return nn.DataParallel(compiled(model))


WRAPPERS = [compiled, a_compiled_part, compiled_in_place, nn.DataParallel, twice]


@pytest.fixture(params=WRAPPERS, ids=lambda wrap: wrap.__name__)
def wrapped(request):
    """A model that has been called before, so that it is compiled."""
    model = request.param(network())
    model(torch.rand(2, 1, 8, 8))
    yield model
    torch.compiler.reset()


@pytest.fixture
def images():
    return torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def test_audit(wrapped, images):
    expected = audit(network(), images)
    table = audit(wrapped, images)
    assert str(table) == str(expected)
    assert all(layer.ratio is not None for layer in table)
    for name in ("1.weight", "_orig_mod.1.weight", "module._orig_mod.1.weight"):
        assert table[name] == expected["1.weight"]


def test_back_to_the_input(wrapped, images):
    expected = invert.reconstruct(network(), images, "1")
    for name in ("1", "_orig_mod.1", "module.1"):
        torch.testing.assert_close(invert.reconstruct(wrapped, images, name), expected)
    torch.testing.assert_close(invert.reconstruct(wrapped, images, "0.0"), invert.reconstruct(network(), images, "0.0"))
    parts = (invert.decompose(model, images, "1", k=2).signals for model in (wrapped, network()))
    torch.testing.assert_close(*parts)


@pytest.mark.parametrize("method", ["sat", "cam", "ig", "guided-ig"])
def test_maps(wrapped, images, method):
    options = {"steps": 5} if "ig" in method else {}
    maps = (explain.get(method)(model, images, **options) for model in (wrapped, network()))
    torch.testing.assert_close(*maps)


def test_layers_and_measures(wrapped, images):
    assert list(explain.map_layers(wrapped, images)) == list(explain.map_layers(network(), images))
    saliency = torch.rand(2, 8, 8)
    curves = (
        measure.deletion_insertion(model, images, saliency, steps=4, score="logit").deletion_curves
        for model in (wrapped, network())
    )
    torch.testing.assert_close(*curves)


def test_a_layer_that_is_called_module(images):
    """Not a wrapper: the name is the layer's own."""
    model = nn.Sequential()
    model.add_module("module", nn.Conv2d(1, 2, 3))
    model.add_module("head", nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)))
    assert [layer.name for layer in audit(model)] == ["module.weight", "head.2.weight"]
    assert invert.reconstruct(model, images, "module").shape == images.shape
