"""`bort report` and `bort figures`"""

import shutil

import pytest
from PIL import Image

FEW = ("--measured", 8, "--shown", 2, "--features", 8)


def test_a_report_of_weights_alone(bort, in_a_folder_of_its_own, tmp_path, capsys):
    bort("report", "tests.cli.networks:model")
    shown = capsys.readouterr().out
    assert "saliency is left out: tests.cli.networks:model has no test images" in shown
    assert "report.html" in shown.splitlines()[-1]
    assert "Singular values" in (tmp_path / "report.html").read_text()


def test_an_explorers_address(bort, in_a_folder_of_its_own, tmp_path):
    bort("report", "tests.cli.networks:model", "--explorer", "http://localhost:8765")
    assert 'href="http://localhost:8765/?view=audit"' in (tmp_path / "report.html").read_text()
    with pytest.raises(SystemExit, match="bort report: explorer='localhost': give its address alone"):
        bort("report", "tests.cli.networks:model", "--explorer", "localhost")


def test_a_damaged_run_is_named_and_nothing_overwritten(bort, runs, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(runs[0], damaged)
    for file in (damaged / "checkpoints").rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    page = tmp_path / "report.html"
    page.write_text("mine")
    with pytest.raises(SystemExit, match=f"bort report: the run in {damaged} cannot be read"):
        bort("report", runs[0], damaged, "--out", page)
    assert page.read_text() == "mine"
    assert not (tmp_path / "report-figures").exists()


def test_a_folder_is_no_page(bort, runs, tmp_path):
    with pytest.raises(SystemExit, match="is a folder; name the page"):
        bort("report", runs[0], "--out", tmp_path)


def test_figures_by_name(bort, runs, tmp_path, capsys):
    bort("figures", "fig:1_3_recon_ratio", "figure 4", "gram", "--runs", *runs, *FEW, "--out", tmp_path)
    names = ("ratio", "reconstruction", "gram")
    assert {f.name for f in tmp_path.iterdir()} == {f"{name}.{ending}" for name in names for ending in ("png", "svg")}
    with Image.open(tmp_path / "ratio.png") as image:
        assert image.size[0] > 400
    assert "math" not in (tmp_path / "gram.svg").read_text(), "TeX is off: names have dollars in them"
    assert "reconstruction.png and .svg (Paper, figure 4): Each image, traced back" in capsys.readouterr().out


def test_a_figure_that_makes_no_sense_is_left_out(bort, tmp_path, capsys):
    bort("figures", "sigma", "ratio", "--runs", "lenet", "--out", tmp_path)
    assert "ratio is left out: reconstruction ratios need test images" in capsys.readouterr().out
    assert {f.name for f in tmp_path.iterdir()} == {"sigma.png", "sigma.svg"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--runs", "lenet"), "name a figure: all, reconstruction"),
        (("rato", "--runs", "lenet"), "no figure is called 'rato'; there are ratio"),
        (("ratio",), "name the folder of a run"),
    ],
)
def test_errors_are_said_in_a_line(bort, in_a_folder_of_its_own, arguments, message):
    with pytest.raises(SystemExit, match=f"bort figures: {message}"):
        bort("figures", *arguments)
