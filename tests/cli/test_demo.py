"""`bort demo`: the whole path in small, twice, and what stopping it leaves."""

import json
import re
from dataclasses import replace

import pytest

from bort import train
from bort.cli.demo import RECIPES, remove_demo, run
from bort.report import SampleSizes
from bort.train.recipes import Data, Net

SMALL = SampleSizes(shown=2, measured=8, evaluated=2, masks=20, features=8, pairs=8)


def recipes(net, **settings):
    """The demo's, with another network and on fewer images."""
    data = Data("tests.train.small:dataset", 28, 1)
    return {name: replace(train.recipes.get(r), net=net, data=data, **settings) for name, r in RECIPES.items()}


NARROW = Net("acnn-small", {"width": 0.05, "narrowest": 4})


@pytest.mark.slow
def test_the_whole_path_and_again(tmp_path, capsys):
    once = recipes(NARROW, epochs=1)
    run(tmp_path, once, sizes=SMALL)
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert re.fullmatch(r"Bort-S: \d+\.\d% / ratio \d\.\d\d; SGD: \d+\.\d% / ratio \d\.\d\d; report: .*", last), last
    page = tmp_path / "report.html"
    before = page.stat().st_mtime_ns
    assert (tmp_path / "report-figures" / "reconstruction.png").exists()

    run(tmp_path, once, sizes=SMALL)
    again = capsys.readouterr().out
    assert "the report is there already" in again
    assert again.strip().splitlines()[-1] == last
    assert page.stat().st_mtime_ns == before

    with pytest.raises(ValueError, match="bort demo --fresh"):
        run(tmp_path, recipes(NARROW, epochs=2), sizes=SMALL)
    (tmp_path / "mine.txt").write_text("kept")
    run(tmp_path, recipes(NARROW, epochs=1, seed=1), fresh=True, sizes=SMALL)
    assert page.stat().st_mtime_ns > before
    assert (tmp_path / "mine.txt").exists()


def test_fresh_touches_only_what_a_demo_has_written(tmp_path):
    ours = tmp_path / "Bort-S"
    (ours / "checkpoints").mkdir(parents=True)
    (ours / "environment.4711-1.writing").touch()  # what a kill while that was written leaves
    recipe = train.recipes.get("mnist5k-lenet-sgd")
    (tmp_path / "SGD").mkdir()
    (tmp_path / "SGD" / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    with pytest.raises(ValueError, match="SGD is not a run of the demo alone"):
        remove_demo(tmp_path, RECIPES)
    assert ours.exists(), "nothing is removed before everything is checked"
    (tmp_path / "SGD" / "recipe.json").unlink()
    (tmp_path / "report.html").write_text("my own page")
    with pytest.raises(ValueError, match=r"report\.html is not a report of bort's"):
        remove_demo(tmp_path, RECIPES)
    (tmp_path / "report.html").write_text("Made by bort 0.1.0")
    (tmp_path / "report-figures").mkdir()
    (tmp_path / "report-figures" / "mine.png").touch()
    remove_demo(tmp_path, RECIPES)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == [
        "report-figures",
        "report-figures/mine.png",
    ]


def test_stopped_in_the_first_training(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        run(tmp_path, recipes(Net("tests.cli.networks:stopping"), epochs=2), sizes=SMALL)
    assert stop.value.code == 75
    assert "`bort demo` goes on from here" in capsys.readouterr().err
    assert train.load(tmp_path / "SGD").history == []


def test_another_epoch_than_before(bort, tmp_path):
    """The command itself, with the demo's own recipes; refused before anything is trained."""
    folder = tmp_path / "SGD"
    folder.mkdir()
    recipe = replace(train.recipes.get(RECIPES["SGD"]), name="SGD", epochs=7, paper=None)
    (folder / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    with pytest.raises(SystemExit, match=r"bort demo: (.|\n)*epochs: 7 → 3(.|\n)*bort demo --fresh"):
        bort("demo", "--out", tmp_path, "--epochs", 3)
