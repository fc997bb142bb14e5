"""Networks of other packages, and options that a network does not have."""

import pytest
import torch
from torch import nn

from bort import nets


def perceptron(channels, classes, image_size, hidden=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, hidden), nn.Linear(hidden, classes))


def no_network(channels, classes, image_size):
    return "perceptron"


def of_one_shape():
    return perceptron(1, 10, 28)


def of_any_option(**options):
    return perceptron(options["channels"], options["classes"], options["image_size"])


NOT_A_FUNCTION = 3
SHAPE = {"channels": 3, "classes": 5, "image_size": 4}


def test_a_function_of_another_package():
    net = nets.create(f"{__name__}:perceptron", **SHAPE, hidden=6)
    assert net[1].out_features == 6
    assert net(torch.zeros(2, 3, 4, 4)).shape == (2, 5)
    assert nets.create(f"{__name__}:of_any_option", **SHAPE, whatever=1)(torch.zeros(2, 3, 4, 4)).shape == (2, 5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{__name__}:no_network", "no_network returns a str, not a torch.nn.Module"),
        (
            f"{__name__}:of_one_shape",
            "has no parameter 'channels': a network's function takes channels, classes, image",
        ),
        (f"{__name__}:nothing", "the module 'tests.nets.test_import_path' has no 'nothing'"),
        (f"{__name__}:NOT_A_FUNCTION", "is a int, not a function"),
        ("nowhere.at_all:net", "there is no module 'nowhere'. Is it installed, or on PYTHONPATH?"),
        ("tests.nets.nowhere:net", "there is no module 'tests.nets.nowhere'"),
    ],
)
def test_what_is_no_network_is_said(name, message):
    with pytest.raises(ValueError, match=message):
        nets.create(name, **SHAPE)


def test_an_import_that_fails_inside_the_module_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "net_with_a_missing_import.py").write_text("import not_installed_anywhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        nets.create("net_with_a_missing_import:net")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lenet", {"width": 0.5}, "lenet has no option 'width'; it has activation, pool, last"),
        ("acnn-small", {"widht": 0.5}, "acnn-small has no option 'widht'; it has width, narrowest"),
        (f"{__name__}:perceptron", {"depth": 2}, "perceptron has no option 'depth'; it has hidden"),
        ("timm/resnet18", {"widht": 0.5}, "timm/resnet18 has no option 'widht'"),
    ],
)
def test_an_option_that_a_network_does_not_have(name, options, message):
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        nets.create(name, **options)
