"""`bort demo`: the whole path in small, twice, and what stopping it leaves."""

import json
import re
import signal
import subprocess
import sys

import pytest

from bort import _demo, train
from bort.report import SampleSizes
from tests.train.small import stop_at

SMALL = SampleSizes(shown=2, measured=8, evaluated=2, masks=20, features=8, pairs=8)


@pytest.fixture
def narrow(monkeypatch):
    """The demo's recipes, narrower still."""
    from dataclasses import replace

    real = train.recipes.get

    def get(name):
        recipe = real(name)
        return replace(recipe, net=replace(recipe.net, width=0.05, narrowest=4))

    monkeypatch.setattr("bort.train.recipes.get", get)


@pytest.mark.slow
def test_the_whole_path_and_again(narrow, tmp_path, capsys):
    _demo.run(tmp_path, 1, 0, fresh=False, amount=SMALL)
    shown = capsys.readouterr().out
    last = shown.strip().splitlines()[-1]
    assert re.fullmatch(r"Bort-S: \d+\.\d% / ratio \d\.\d\d; SGD: \d+\.\d% / ratio \d\.\d\d; report: .*", last), last
    page = tmp_path / "report.html"
    before = page.stat().st_mtime_ns
    assert (tmp_path / "report-figures" / "reconstruction.png").exists()

    _demo.run(tmp_path, 1, 0, fresh=False, amount=SMALL)
    again = capsys.readouterr().out
    assert "the report is there already" in again
    assert again.strip().splitlines()[-1] == last
    assert page.stat().st_mtime_ns == before

    with pytest.raises(ValueError, match="bort demo --fresh"):
        _demo.run(tmp_path, 2, 0, fresh=False, amount=SMALL)
    (tmp_path / "mine.txt").write_text("kept")
    _demo.run(tmp_path, 1, 1, fresh=True, amount=SMALL)
    assert page.stat().st_mtime_ns > before
    assert (tmp_path / "mine.txt").exists()


def test_fresh_touches_only_what_a_demo_has_written(tmp_path):
    ours = tmp_path / "Bort-S"
    (ours / "checkpoints").mkdir(parents=True)
    recipe = train.recipes.get("mnist5k-lenet-sgd")
    (tmp_path / "SGD").mkdir()
    (tmp_path / "SGD" / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    with pytest.raises(ValueError, match="SGD is not a run of the demo alone"):
        _demo._sweep(tmp_path)
    assert ours.exists(), "nothing is removed before all is known"
    (tmp_path / "SGD" / "recipe.json").unlink()
    (tmp_path / "report.html").write_text("my own page")
    with pytest.raises(ValueError, match=r"report\.html is not a report of bort's"):
        _demo._sweep(tmp_path)
    (tmp_path / "report.html").write_text("Made by bort 0.1.0")
    (tmp_path / "report-figures").mkdir()
    (tmp_path / "report-figures" / "mine.png").touch()
    _demo._sweep(tmp_path)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == [
        "report-figures",
        "report-figures/mine.png",
    ]


def test_stopped_in_the_first_training(narrow, tmp_path, monkeypatch, capsys):
    real = train.fit
    monkeypatch.setattr(_demo.train, "fit", lambda r, out: real(r, out, on_step=stop_at(3, signal.SIGINT)))
    with pytest.raises(SystemExit) as stop:
        _demo.main(tmp_path, 1, 0, fresh=False)
    assert stop.value.code == 75
    assert "`bort demo` goes on from here" in capsys.readouterr().err
    assert train.load(tmp_path / "SGD").history == []


def test_help_is_fast_and_lists_the_commands():
    code = """
import atexit, sys
from bort.cli import main
atexit.register(lambda: print("torch" in sys.modules))
sys.argv = ["bort", "--help"]
main()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "demo" in result.stdout
    assert result.stdout.strip().endswith("False")
