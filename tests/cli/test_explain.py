"""`bort explain`"""

import hashlib
import json

import numpy as np
import pytest
import torch
from PIL import Image

from bort import explain


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
    view = run.view()
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
    bort("explain", run.path, "--count", 2, "--method", "cam", "--target", 3, "--out", out)
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
        (("--count", 0), "0 images: must be 1 or more"),
        (("--option", "steps"), "--option steps: give it as NAME=VALUE"),
        (("--option", "rule=guided", "--k", 3, "--option", "k=4"), "--option k=4: k is given twice"),
        (("--method", "cam", "--option", "masks=4"), "--masks 4 says nothing to cam; it is for rise"),
        (("--option", "colour=blue"), "--colour blue says nothing to sat; no method has such an option"),
    ],
)
def test_errors_are_said_in_a_line(run, bort, tmp_path, arguments, message):
    with pytest.raises(SystemExit, match=f"bort explain: .*{message}"):
        bort("explain", run.path, *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists(), "nothing half-written"


def test_files_that_would_overwrite_each_other(run, bort, image, tmp_path):
    image.with_name("bar-sat.png").write_bytes(image.read_bytes())
    with pytest.raises(SystemExit, match=r"two images would be written as bar-sat\.png"):
        bort("explain", run.path, image, image.with_name("bar-sat.png"), "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists(), "nothing half-written"
    with pytest.raises(SystemExit, match="--count 3 is for test images"):
        bort("explain", run.path, image, "--count", 3)


def test_bad_files(run, bort, tmp_path):
    with pytest.raises(SystemExit, match=r"bort explain: there is no image .*nowhere\.png"):
        bort("explain", run.path, tmp_path / "nowhere.png")
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(SystemExit, match=r"text\.png is not a readable image"):
        bort("explain", run.path, tmp_path / "text.png")
    with pytest.raises(SystemExit, match="is not a run"):
        bort("explain", tmp_path)


def recording(model, x, target=None, *, scale=1, flag=False, mode="a", steps_of_its_own=2):
    """A method of another package, whose map is what it was told."""
    number = float(scale) + 10 * (flag is True) + 100 * (mode == "b c") + 1000 * (steps_of_its_own == 0.5)
    return torch.full((len(x), *x.shape[-2:]), number)


def test_options_of_other_packages_methods(run, bort, tmp_path):
    out = tmp_path / "out"
    options = ("scale=3", "flag=true", "mode=b c", "steps-of-its-own=0.5")
    with explain.local_registry():
        explain.register("recording", recording)
        arguments = [argument for option in options for argument in ("--option", option)]
        bort("explain", run.path, "--method", "recording", "cam", "--count", 1, *arguments, "--out", out)
    assert np.load(out / "test-0-recording.npy").min() == 1113
    manifest = json.loads((out / "manifest.json").read_text())
    told = {"scale": 3, "flag": True, "mode": "b c", "steps_of_its_own": 0.5}
    assert manifest["options"] == {"recording": told, "cam": {}}


@pytest.mark.parametrize("command", ["explain", "evaluate"])
def test_methods_are_listed(bort, capsys, command):
    with explain.local_registry():
        explain.register("recording", recording)
        with pytest.raises(SystemExit) as end:
            bort(command, "nowhere", "--method", "list")
    assert not end.value.code
    assert capsys.readouterr().out.split() == [*explain.names(), "recording"]


def test_a_network_that_no_run_has_trained(bort, image, in_a_folder_of_its_own, tmp_path):
    bort("explain", "tests.cli.networks:subject", "--k", 4)
    assert (tmp_path / "explained" / "test-0-sat.png").exists()
    bort("explain", "tests.cli.networks:with_a_view_only", image, "--k", 4, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "bar-sat.png").exists()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("lenet", "it is not known how lenet sees an image: give --size, --mean and --std"),
        ("tests.cli.networks:model", r"it is not known how tests\.cli\.networks:model sees an image"),
        ("tests.cli.networks:with_a_view_only", "mine has no test images"),
    ],
)
def test_what_a_network_without_a_run_lacks_is_said(bort, what, message):
    with pytest.raises(SystemExit, match=f"bort explain: {message}"):
        bort("explain", what)


def test_constant_maps_are_said(bort, in_a_folder_of_its_own, tmp_path, capsys):
    bort("explain", "tests.cli.networks:untrained_head", "--count", 2, "--method", "cam", "sat", "--k", 4)
    shown = capsys.readouterr().out
    assert shown.count("is the same number everywhere") == 1
    assert "The map of cam is the same number everywhere for 2 of 2 images" in shown
    assert len(json.loads((tmp_path / "explained" / "manifest.json").read_text())["notes"]) == 1


def test_a_network_with_one_logit(bort, image, tmp_path, capsys):
    """It says the first class, and its maps are of the logit, which is for the second."""
    bort("explain", "tests.cli.networks:one_logit", image, "--method", "ig", "--out", tmp_path / "out")
    (entry,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["images"]
    assert (entry["says"], entry["probability"], entry["explained"]) == ("cat", 0.8808, "dog")
    assert "bar: cat, 88.1%" in capsys.readouterr().out


def test_the_target_of_a_network_with_one_logit_is_a_class(bort, image, tmp_path):
    arguments = ("explain", "tests.cli.networks:one_logit", image, "--method", "ig", "--out", tmp_path / "out")
    bort(*arguments, "--target", 1)
    (entry,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["images"]
    assert (entry["says"], entry["explained"]) == ("cat", "dog")
    for other in (0, 2):
        with pytest.raises(SystemExit, match=f"--target {other}: .* a single logit, which is for class 1"):
            bort(*arguments, "--target", other)
