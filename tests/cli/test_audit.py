"""`bort audit`, as typed."""

import json
import sys

import pytest
import torch

from bort import data, measure
from bort.cli import main
from bort.train._examples import examples
from tests.train.small import RECIPE, build, fit


def bort(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["bort", *map(str, arguments)])
    main()


def test_of_a_run(monkeypatch, capsys, tmp_path):
    run = fit(tmp_path, RECIPE)
    monkeypatch.setattr("bort.train._run.build", build)
    capsys.readouterr()
    bort(monkeypatch, "audit", tmp_path, "--images", 20, "--form", "json")
    rows = json.loads(capsys.readouterr().out)
    expected = measure.audit(run.model, examples(run.recipe, 20)[0]).to_dict()
    assert [row["name"] for row in rows] == [row["name"] for row in expected]
    assert rows[0]["ratio"] == pytest.approx(expected[0]["ratio"])
    bort(monkeypatch, "audit", tmp_path, "--images", 0, "--form", "markdown")
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("| layer |")
    assert "| – |" in shown[2], "nothing is measured on data"


def test_of_a_network(monkeypatch, capsys):
    bort(monkeypatch, "audit", "timm/resnet18")
    shown = capsys.readouterr().out
    assert "layer1.0.conv1.weight" in shown
    assert "no, wide" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lenet", "--images", 7), "a network by itself has no images"),
        (("RUN", "--image-size", 64), "a run has its own"),
    ],
)
def test_options_that_would_say_nothing(monkeypatch, tmp_path, arguments, message):
    what = [tmp_path if each == "RUN" else each for each in arguments]
    with pytest.raises(SystemExit, match=message):
        bort(monkeypatch, "audit", *what)


@pytest.mark.parametrize(("what", "message"), [("lenett", "no network is called 'lenett'"), (".", "is not a run")])
def test_mistakes_are_said_in_a_line(monkeypatch, tmp_path, what, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=f"bort audit: .*{message}"):
        bort(monkeypatch, "audit", what)


def test_examples_are_spread_over_the_classes():
    images, labels = examples(RECIPE, 50)
    digits = data.load("mnist5k")
    assert images.shape == (50, 1, 28, 28)
    assert torch.bincount(labels, minlength=10).tolist() == [5] * 10
    torch.testing.assert_close(images[0], digits.normalise(digits.test_images[:1])[0])
    assert len(examples(RECIPE, 5000)[0]) == 1000
    with pytest.raises(ValueError, match="0 images: must be 1 or more"):
        examples(RECIPE, 0)
