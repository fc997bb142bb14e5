"""Every command that looks at networks, with networks that no run has trained."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

from bort.app import Explorer
from bort.cli import main
from bort.data import View
from bort.subject import Details, resolve, resolve_all
from tests.subject.small import network, write_images
from tests.subject.test_views import hugging_face


@pytest.fixture
def bort(monkeypatch):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["bort", *map(str, arguments)])
        main()

    return run


@pytest.fixture
def images(tmp_path):
    return write_images(tmp_path / "images", [f"{n}.png" for n in range(6)], size=(40, 48))


def test_weights_of_ones_own(bort, images, tmp_path, capsys):
    torch.save({"state_dict": network().state_dict()}, tmp_path / "mine.ckpt")
    how = ("--size", 16, "--mean", 0.5, 0.5, 0.5, "--std", 0.2, 0.2, 0.2, "--weights", tmp_path / "mine.ckpt")
    given = "tests.subject.small:network"
    bort("audit", given, *how, "--images", images, "--count", 4, "--form", "json")
    assert [layer["name"] for layer in json.loads(capsys.readouterr().out)] == ["0.weight", "3.weight"]
    out = tmp_path / "explained"
    bort("explain", given, *how, "--images", images, "--count", 2, "--method", "cam", "ig", "--out", out)
    assert len(list(out.glob("*.npy"))) == 4
    bort(
        "evaluate",
        given,
        *how,
        "--images",
        images,
        "--count",
        3,
        "--steps",
        4,
        "--methods",
        "cam",
        "--out",
        tmp_path / "e",
    )
    assert "3 images" in capsys.readouterr().out


def test_a_checkpoint_of_hugging_face(bort, images, tmp_path, capsys):
    hugging_face("resnet", tmp_path / "hf")
    bort("explain", f"hf:{tmp_path / 'hf'}", images / "0.png", "--method", "cam", "--out", tmp_path / "out")
    assert re.search(r"0: (cat|dog|cow), \d", capsys.readouterr().out)


def test_an_image_may_have_several_classes(bort, images, tmp_path, capsys):
    """Probabilities are sigmoids: what a person reads, and what deletion and insertion follow."""
    how = ("--size", 16, "--mean", 0.5, 0.5, 0.5, "--std", 0.2, 0.2, 0.2, "--multi-label")
    given = "tests.subject.small:network"
    out = tmp_path / "explained"
    bort("explain", given, images / "0.png", *how, "--method", "cam", "rise", "--masks", 4, "--out", out)
    manifest = json.loads((out / "manifest.json").read_text())
    view = View(16, 3, (0.5,) * 3, (0.2,) * 3)
    largest = network()(view.read(images / "0.png")).sigmoid().max().item()
    assert manifest["images"][0]["probability"] == pytest.approx(largest, abs=1e-4)
    shared = ("--images", images, "--count", 3, "--steps", 4, "--methods", "cam")
    bort("evaluate", given, *how, *shared, "--out", tmp_path / "several")
    bort("evaluate", given, *how[:-1], *shared, "--out", tmp_path / "one")
    curves = [np.load(tmp_path / name / "cam-probability-deletion.npy") for name in ("several", "one")]
    logits = np.load(tmp_path / "one" / "cam-logit-deletion.npy")
    np.testing.assert_allclose(curves[0], 1 / (1 + np.exp(-logits)), rtol=1e-4)
    assert not np.allclose(curves[0], curves[1])


def test_the_explorer_shows_sigmoids_of_such_networks(images):
    details = Details(images=images, size=(16,), mean=(0.5,) * 3, std=(0.2,) * 3, multi_label=True)
    explorer = Explorer(resolve_all(["tests.subject.small:network"], details), examples=2)
    (run,) = explorer.subjects
    x = explorer.image(run, "test-0")
    expected = network()(x).sigmoid()[0].sort(descending=True).values.tolist()
    assert [answer["probability"] for answer in explorer.predict(run, "test-0")] == pytest.approx(expected)
    curve = explorer.saliency.curve(run, "test-0", explorer.saliency.map(run, "test-0", "cam"))
    assert curve["probability"]["deletion"][0] == pytest.approx(expected[0])


def test_hugging_face_says_itself_that_an_image_may_have_several_classes(tmp_path):
    model, _ = hugging_face("vit", tmp_path)
    assert not resolve(f"hf:{tmp_path}").multi_label
    model.config.problem_type = "multi_label_classification"
    model.save_pretrained(tmp_path)
    assert resolve(f"hf:{tmp_path}").multi_label


def test_a_report_of_two_kinds_of_networks(bort, images, runs, tmp_path):
    """A run on digits and a network of timm, shown the same photographs."""
    sizes = ("--shown", 2, "--measured", 4, "--evaluated", 2, "--masks", 20, "--pairs", 4, "--features", 4)
    options = ("--images", images, "--size", 32, "--out", tmp_path / "report.html")
    bort("report", runs[0], "timm/test_resnet", *options, *sizes)
    page = (tmp_path / "report.html").read_text()
    assert "timm/test_resnet" in page
    assert "plain" in page
    assert "6 in" in page


def test_the_explorer_shows_both_the_same_image(runs, tmp_path):
    """Whatever each network calls the classes of the folders, and so in whatever order it would have the images."""
    for level, name in ((40, "tench"), (80, "9"), (120, "goldfish"), (160, "3")):
        (tmp_path / name).mkdir()
        Image.new("RGB", (40, 48), (level,) * 3).save(tmp_path / name / "grey.png")
    details = [Details(images=tmp_path), Details(images=tmp_path, size=(32,))]
    explorer = Explorer(resolve_all([runs[0], "timm/test_resnet"], details))
    for image in explorer.gallery.list():
        assert image.inputs["plain"].shape == (1, 1, 28, 28)
        assert image.inputs["timm/test_resnet"].shape == (1, 3, 32, 32)
        levels = [explorer.view(run).pixels(x).mean().item() for run, x in image.inputs.items()]
        assert levels[0] == pytest.approx(levels[1], abs=1e-3)
    assert explorer.predict("timm/test_resnet", image.name)[0]["name"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("audit", "timm/test_resnet", "--weights", "a", "b"),
            "--weights has 2 files for 1 networks.* stand before it",
        ),
        (("report", "timm/test_resnet", "lenet", "--weights", "-", "nowhere"), "there is no file nowhere"),
        (
            ("explain", "timm/test_resnet"),
            r"test images: show it some with images=FOLDER \(in a command --images FOLDER\)",
        ),
        (("serve", "tests.subject.small:network"), "it is not known how .* sees an image.*size, mean and std"),
        (("evaluate", "timm/test_resnet", "--images", "7"), "--images 7: this is a folder of images; --count says"),
    ],
)
def test_errors_are_said_in_a_line(bort, arguments, message):
    with pytest.raises(SystemExit, match=message):
        bort(*arguments)
