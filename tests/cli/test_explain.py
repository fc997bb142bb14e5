"""`bort explain` and `bort evaluate`, as typed, on a small run."""

import hashlib
import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from bort import explain, measure
from bort.cli import main
from bort.train._examples import examples
from bort.data._view import view_of_run
from tests.train.small import RECIPE, build, fit


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("run") / "small", RECIPE)


@pytest.fixture
def bort(monkeypatch):
    monkeypatch.setattr("bort.train._run.build", build)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["bort", *map(str, arguments)])
        main()

    return call


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "bar.png"
    pixels = np.zeros((28, 28), dtype=np.uint8)
    pixels[8:14] = 200
    Image.fromarray(pixels).save(path)
    return path


def test_files(run, bort, image, tmp_path, capsys):
    out = tmp_path / "out"
    bort("explain", run.path, image, "--method", "sat", "cam", "--k", 4, "--out", out)
    view = view_of_run(run)
    x = view.read(image)
    expected = torch.from_numpy(np.array(Image.open(image)) / 255)
    torch.testing.assert_close(view.pixels(x)[0, 0].double(), expected, atol=1e-6, rtol=0)
    model = run.model
    np.testing.assert_allclose(np.load(out / "bar-sat.npy"), explain.sat(model, x, k=4)[0], rtol=1e-5)
    np.testing.assert_allclose(np.load(out / "bar-cam.npy"), explain.cam(model, x)[0], rtol=1e-4, atol=1e-6)
    manifest = json.loads((out / "manifest.json").read_text())
    (entry,) = manifest["images"]
    assert entry["sha256"] == hashlib.sha256(image.read_bytes()).hexdigest()
    assert entry["says"] == entry["explained"] == str(int(model(x).argmax()))
    assert manifest["options"] == {"sat": {"k": 4}, "cam": {}}
    assert sorted(manifest["files"]) == sorted(p.name for p in out.iterdir() if p.name != "manifest.json")
    with Image.open(out / "bar-sat.png") as picture:
        assert picture.size == (224, 224)
    assert f"bar: {entry['says']}" in capsys.readouterr().out


def test_a_second_call_replaces_the_first_and_nothing_else(run, bort, image, tmp_path):
    out = tmp_path / "out"
    bort("explain", run.path, image, "--method", "sat", "cam", "--k", 4, "--out", out)
    (out / "mine.txt").write_text("kept")
    bort("explain", run.path, "--examples", 2, "--method", "cam", "--target", 3, "--out", out)
    names = {p.name for p in out.iterdir()}
    assert names == {
        "mine.txt",
        "manifest.json",
        *(f"test-{n}{end}" for n in (0, 1) for end in (".png", "-cam.png", "-cam.npy")),
    }
    (out / "bar.png").write_bytes(b"somebody's")
    with pytest.raises(SystemExit, match=r"bar\.png is there already and not bort's"):
        bort("explain", run.path, image, "--out", out, "--k", 4)
    assert (out / "bar.png").read_bytes() == b"somebody's"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "sut"), "no method is called 'sut'; there are sat"),
        (("--method", "cam", "--k", 3), "--k 3 says nothing to cam; it is for sat"),
        (("--k", 1000), "k=1000: the layer has 16 channels"),
        (("--strength", 3), "--strength 3.0: must be from 0"),
        (("--target", 12), "target=12: the model has 10 classes"),
        (("--layer", "conv9", "--k", 3), "no layer 'conv9'; there are 'conv2', 'conv1'"),
        (("--examples", 0), "0 images: must be 1 or more"),
    ],
)
def test_mistakes_are_said_in_a_line(run, bort, tmp_path, arguments, message):
    with pytest.raises(SystemExit, match=f"bort explain: .*{message}"):
        bort("explain", run.path, *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists(), "nothing half-written"


def test_files_that_would_overwrite_each_other(run, bort, image, tmp_path):
    image.with_name("bar-sat.png").write_bytes(image.read_bytes())
    with pytest.raises(SystemExit, match=r"two images would be written as bar-sat\.png"):
        bort("explain", run.path, image, image.with_name("bar-sat.png"), "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists(), "nothing half-written"
    with pytest.raises(SystemExit, match="--examples 3 is for test images"):
        bort("explain", run.path, image, "--examples", 3)


def test_sixteen_bits_of_grey(run, tmp_path):
    ramp = np.linspace(0, 65535, 28 * 28).astype(np.uint16).reshape(28, 28)
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    view = view_of_run(run)
    pixels = view.pixels(view.read(tmp_path / "ramp.png"))[0, 0]
    torch.testing.assert_close(pixels.double(), torch.from_numpy(ramp / 65535), atol=1 / 254, rtol=0)


def test_bad_files(run, bort, tmp_path):
    with pytest.raises(SystemExit, match=r"bort explain: there is no image .*nowhere\.png"):
        bort("explain", run.path, tmp_path / "nowhere.png")
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(SystemExit, match=r"text\.png is not a readable image"):
        bort("explain", run.path, tmp_path / "text.png")
    with pytest.raises(SystemExit, match="is not a run"):
        bort("explain", tmp_path)


def test_evaluate_two_runs(run, bort, tmp_path, capsys):
    out = tmp_path / "out"
    bort("evaluate", run.path, run.path, "--methods", "cam", "sat", "--k", 4, "--images", 6, "--steps", 7, "--out", out)
    shown = capsys.readouterr().out
    assert shown.count("1-small") == shown.count("2-small") == 2
    x = examples(run.recipe, 6)[0]
    expected = measure.evaluate(run.model, x, ["sat"], steps=7, options={"sat": {"k": 4}})["sat"]
    np.testing.assert_allclose(np.load(out / "1-small-sat-maps.npy"), expected.maps, rtol=1e-5)
    manifest = json.loads((out / "manifest.json").read_text())
    found = next(r for r in manifest["results"] if (r["run"], r["method"]) == ("2-small", "sat"))
    for score, curves in expected.scores.items():
        assert found["areas"][score] == pytest.approx(curves.means, rel=1e-4)
        np.testing.assert_allclose(
            np.load(out / f"1-small-sat-{score}-deletion.npy"), curves.deletion_curves, rtol=1e-4
        )
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_view_without_a_record_of_it(run, tmp_path):
    """Runs of earlier versions have none: then the data are asked."""
    from dataclasses import replace

    from bort import data

    old = replace(run, environment=[{"data": {"name": "mnist5k"}}])
    mean, std = (s.tolist() for s in data.load("mnist5k").statistics())
    assert (view_of_run(old).mean, view_of_run(old).std) == (tuple(mean), tuple(std))
