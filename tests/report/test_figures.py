"""What figures say, against the numbers they are made of; and runs of all kinds."""

import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from bort import invert, measure, nets, train
from bort.cli import main
from bort.data import Dataset
from bort.report import FIGURES, SampleSizes, Missing, draw, make, subjects
from bort.pictures import heat, overlay, picture, signal
from bort.train._examples import examples
from bort.train.recipes import Data
from tests.report.test_page import AMOUNT
from tests.train.small import RECIPE, dataset, fit


def test_the_numbers_are_the_runs_own(runs):
    both = subjects(runs, AMOUNT)
    for subject in both:
        x = subject.images(AMOUNT.measured)
        back = invert.reconstruct(subject.model, x, "conv5")
        means = np.mean([np.corrcoef(a.flatten(), b.flatten())[0, 1] for a, b in zip(back, x, strict=True)])
        assert f"{subject.name} {means:.2f}" in draw("reconstruction", both).look
        ratios = list(measure.reconstruction_ratio(subject.model, x).values())
        assert f"{subject.name} {np.mean(ratios):.2f}" in draw("ratio", both).look
        audit = measure.audit(subject.model)
        low, high = min(layer.sigma[0] for layer in audit), max(layer.sigma[1] for layer in audit)
        assert f"{subject.name}: {low:.2f} to {high:.2f}" in draw("sigma", both).look
        assert f"{subject.run.accuracy:.2%}" in draw("training", both).look


def test_images_of_all_classes_come_first(runs):
    (subject, _) = subjects(runs, AMOUNT)
    assert sorted(subject.labels(10).tolist()) == list(range(10))
    assert set(map(tuple, subject.images(12).flatten(1).tolist())) <= set(
        map(tuple, examples(RECIPE, 12)[0].flatten(1).tolist())
    )


def test_pictures_keep_the_order():
    ramp = torch.linspace(-3, 5, 100).view(10, 10)
    bright = heat(ramp).astype(int).sum(axis=2).flatten()
    assert (np.diff(bright) >= 0).all()
    assert heat(torch.zeros(4, 4)).shape == (4, 4, 3), "a flat map"
    grey = picture(torch.full((1, 2, 2), 0.5))
    assert grey.tolist() == [[[128] * 3] * 2] * 2
    assert np.array_equal(overlay(torch.full((3, 2, 2), 0.5), torch.rand(2, 2), 0.0), grey)
    assert signal(torch.randn(3, 5, 5)).shape == (5, 5, 3)
    with pytest.raises(ValueError, match="strength=2: must be from 0"):
        overlay(torch.zeros(1, 2, 2), torch.zeros(2, 2), 2)


def colour(recipe):
    return nets.create("acnn-small", channels=3, image_size=32, width=0.02, narrowest=4)


def colour_data():
    grey = dataset()
    images = [
        torch.nn.functional.pad(i, (2, 2, 2, 2)).repeat(1, 3, 1, 1) for i in (grey.train_images, grey.test_images)
    ]
    return Dataset("cifar10", images[0], grey.train_labels, images[1], grey.test_labels, "x")


def one_class():
    data = dataset()
    return replace(data, test_images=data.test_images[::10], test_labels=torch.zeros(5, dtype=torch.long))


def vit(recipe):
    return nets.create("timm/deit_tiny_patch16_224", channels=1, classes=10, image_size=32, depth=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("colour", set()),
        ("one class", {"adversaries"}),
        ("vit", set()),
        ("no images", None),
        ("no epoch", {"training"}),
    ],
)
def test_runs_of_all_kinds(kind, missing, tmp_path, monkeypatch):
    """A report comes out, with the parts that make sense."""
    from tests.pages import network

    recipe, build, data = replace(RECIPE, epochs=1), network, dataset
    if kind == "colour":
        recipe, build, data = replace(recipe, data=Data("cifar10", 32, 3)), colour, colour_data
    elif kind == "one class":
        data = one_class
    elif kind == "vit":
        recipe, build = replace(recipe, data=Data("mnist5k", 32, 1)), vit
        grey = dataset()
        pad = torch.nn.functional.pad
        wide = replace(
            grey, train_images=pad(grey.train_images, (2, 2, 2, 2)), test_images=pad(grey.test_images, (2, 2, 2, 2))
        )
        data = lambda: wide  # noqa: E731
    run = fit(tmp_path / "run", recipe, network=build, data=data)
    monkeypatch.setattr("bort.train._run.build", build)
    if kind == "no images":
        absent = replace(recipe, data=replace(recipe.data, name=f"folder:{tmp_path / 'nowhere'}"))
        (run.path / "recipe.json").write_text(json.dumps(absent.to_dict()))
        missing = set(FIGURES) - {"training", "gram", "sigma"}
    else:
        monkeypatch.setattr("bort.train._examples.data_of", lambda *_: data())
    if kind == "no epoch":
        real = train.load
        monkeypatch.setattr("bort.report._subject.train.load", lambda path: replace(real(path), history=[]))
    made = make(subjects([run.path], AMOUNT))
    assert set(made.missing) == missing
    files = made.write(tmp_path / "report.html")
    assert len(files) == 1 + 2 * (len(FIGURES) - len(missing))
    page = files[0].read_text()
    assert 'id="audit"' in page
    for name, why in made.missing.items():
        assert f"<li>{name}: " in page
        assert len(why) > 10


def test_a_damaged_run_is_named_and_nothing_overwritten(runs, tmp_path, monkeypatch, capsys):
    bad = tmp_path / "bad"
    shutil.copytree(runs[0], bad)
    for file in (bad / "checkpoints").rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    page = tmp_path / "report.html"
    page.write_text("mine")
    monkeypatch.setattr(sys, "argv", ["bort", "report", str(runs[0]), str(bad), "--out", str(page)])
    with pytest.raises(SystemExit, match=f"bort report: the run in {bad} cannot be read"):
        main()
    assert page.read_text() == "mine"
    assert not (tmp_path / "report-figures").exists()


def test_runs_on_different_data(runs, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(runs[0], other)
    recipe = json.loads((other / "recipe.json").read_text())
    recipe["data"]["name"] = "mnist"
    (other / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(ValueError, match=r"different data \(plain on mnist5k at 28 px; other on mnist at 28 px\)"):
        subjects([runs[0], other])
    with pytest.raises(ValueError, match="name the folder of a run"):
        subjects([])


def test_figures_by_name(runs, tmp_path, monkeypatch, capsys):
    def bort(*arguments):
        monkeypatch.setattr(sys, "argv", ["bort", "figures", *map(str, arguments)])
        main()

    options = ("--measured", 8, "--shown", 2, "--features", 8, "--out", tmp_path)
    bort("fig:1_3_recon_ratio", "2_1_recon", "gram", "--runs", *runs, *options)
    assert {f.name for f in tmp_path.iterdir()} == {
        f"{n}.{e}" for n in ("ratio", "reconstruction", "gram") for e in ("png", "svg")
    }
    with Image.open(tmp_path / "ratio.png") as image:
        assert image.size[0] > 400
    assert "math" not in (tmp_path / "gram.svg").read_text(), "TeX is off: names have dollars in them"
    assert "fig:2_1_recon" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="name a figure: all, training"):
        bort("--runs", runs[0])
    with pytest.raises(SystemExit, match="no figure is called 'rato'; there are ratio"):
        bort("rato", "--runs", runs[0])


def test_curves_lie_within_their_panels(runs):
    figure = draw("deletion", subjects(runs, AMOUNT)).figure
    for cell in figure.axes:
        low, high = cell.get_ylim()
        for line in cell.get_lines():
            assert low <= min(line.get_ydata()) <= max(line.get_ydata()) <= high


def test_fewer_evaluated_than_shown(runs):
    few = subjects(runs[:1], replace(AMOUNT, evaluated=1))
    assert len(draw("saliency", few).figure.axes) == 7, "one image and six maps"


@pytest.mark.parametrize("name", ["cost$\\alpha$x", "a$\\bad$", "_run", "a#24292f", 'x id="y" z', "<b>&"])
def test_names_are_names(runs, tmp_path, name):
    """Whatever TeX, matplotlib, SVG or our own substitutions would read into them."""
    from html import escape

    from bort.report._page import _inline

    shutil.copytree(runs[0], tmp_path / name)
    shutil.copytree(runs[1], tmp_path / "other")
    svg = _inline(draw("ratio", subjects([tmp_path / name, tmp_path / "other"], AMOUNT)), 0)
    assert escape(name, quote=False) in svg.replace("\u200b", "").replace("&quot;", '"')


def test_a_diverged_run_is_named(runs, tmp_path, monkeypatch):
    real = train.load

    def diverged(path):
        run = real(path)
        torch.nn.init.constant_(run.model.conv2.weight, torch.nan)
        return run

    monkeypatch.setattr("bort.report._subject.train.load", diverged)
    with pytest.raises(ValueError, match=r"plain has diverged: conv2\.weight has NaN"):
        subjects(runs[:1])


def test_amounts():
    with pytest.raises(ValueError, match="measured=-3: must be 1 or more"):
        SampleSizes(measured=-3)


def test_the_same_figure_is_the_same_file(runs):
    from bort.pictures import to_svg

    both = subjects(runs, AMOUNT)
    assert to_svg(draw("ratio", both).figure) == to_svg(draw("ratio", both).figure)


def test_missing_says_why(runs):
    (subject,) = subjects(runs[:1], SampleSizes(pairs=1, measured=1, evaluated=1))
    with pytest.raises(Missing, match="two classes"):
        draw("adversaries", [subject])
