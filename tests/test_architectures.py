"""docs/architectures.md: a part of its table again, and whether the page says what was measured."""

import json

import pytest
from torch import nn

from tests.functions import BENCHMARKS, FUNCTIONS, architectures

MEASURED = json.loads((BENCHMARKS / "results" / "architectures-cpu.json").read_text())["architectures"]
PAGE = (BENCHMARKS.parent / "docs" / "architectures.md").read_text()
FEW = (
    "bort lenet",
    "torchvision ConvNeXt, 64 × 96",
    "torchvision SwinTransformer, 64 × 96",
    "timm deit_tiny_distilled",
    "transformers ViTModel",
    "a linear model",
)
SLOW = ("xrai", "evaluate")


@pytest.mark.parametrize("name", FEW)
def test_again(name, monkeypatch):
    for package in ("torchvision", "timm", "transformers"):
        if name.startswith(package):
            pytest.importorskip(package)
    monkeypatch.setattr(architectures, "FUNCTIONS", {key: f for key, f in FUNCTIONS.items() if key not in SLOW})
    architecture = next(a for a in architectures.ARCHITECTURES if a.name == name)
    measured = next(row["results"] for row in MEASURED if row["name"] == name)
    assert architectures.look_at(architecture) == {key: measured[key] for key in FUNCTIONS if key not in SLOW}


def test_the_page_is_made_of_the_file():
    begin, end = (PAGE.index(mark) for mark in (architectures.BEGIN, architectures.END))
    assert PAGE[begin + len(architectures.BEGIN) : end].strip() == architectures.markdown(MEASURED)


def test_every_architecture_and_function_is_there():
    assert [row["name"] for row in MEASURED] == [a.name for a in architectures.ARCHITECTURES]
    assert all(list(row["results"]) == list(FUNCTIONS) for row in MEASURED)
    assert sum(set(row["results"].values()) == {"works"} for row in MEASURED) >= 25
    from bort import explain

    assert set(explain.names()) <= set(FUNCTIONS)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda model, maps: maps.fill_(0), "constant"),
        (lambda model, maps: maps / 0, "not finite"),
        (lambda model, maps: maps[:, :-1], "a result of shape"),
        (lambda model, maps: maps * len(maps), "not close"),
        (lambda model, maps: model.eval() and maps, "modes, gradients or hooks"),
        (lambda model, maps: model.register_forward_hook(lambda *_: None) and maps, "modes, gradients or hooks"),
        (lambda model, maps: model[1].bias.data.add_(1) is not None and maps, "weights have been changed"),
    ],
)
def test_the_checks_notice(spoil, says):
    """A function that does what one must not do."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).double().train()
    x = architectures.images(2, (3, 4, 4))
    function = architectures.Function(lambda m, images: spoil(m, images.sum(dim=1)))
    with pytest.raises(AssertionError, match=says):
        architectures.check(function, model, x)
