"""`bort reproduce` and `bort results`"""

import json
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from bort import train
from bort.cli import main
from bort.cli.reproduce import reproduce, results
from bort.reproduce import TABLES, get
from bort.reproduce import reproduce as run
from tests.reproduce.small import CPU, fit

COMMITTED = Path(__file__).parents[2] / "results"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_row_of_the_quick_form(tmp_path, capsys):
    """Made before by a smaller training, so that the command finds it in the folders where it looks by itself."""
    (file,) = run(
        "table1", Path("results/quick"), Path("runs/reproduce-quick"), CPU, quick=True, only="lenet-sgd", fit=fit
    )
    capsys.readouterr()
    reproduce("table1", quick=True, only="lenet-sgd", device="cpu")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "table1: 1 of 1 results are there, 0 to make",
        "1 results in results/quick/table1",
        "results/quick/RESULTS.md, results/quick/table1.md written",
    ]
    accuracy = json.loads(file.read_text())["metrics"]["accuracy"]
    assert f"{100 * accuracy:.2f} (n = 1)" in (tmp_path / "results/quick/table1.md").read_text()


def test_the_advice_is_of_options_that_the_command_has():
    experiment = next(e for e in get("table1").seeded(quick=True) if "lenet-sgd" in e.stem)
    folder = Path("runs/reproduce-quick") / experiment.stem
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text(json.dumps(experiment.recipe.to_dict()))
    (folder / "environment.json").write_text('[{"processes": 2}]')
    with pytest.raises(SystemExit, match=r"started differently: processes: 2 → 1\. .*--runs") as refusal:
        reproduce("table1", quick=True, only="lenet-sgd", device="cpu")
    assert "force" not in str(refusal.value)


def test_results_are_written_and_checked(tmp_path, capsys):
    for table in ("table1", "ablation"):
        shutil.copytree(COMMITTED / table, tmp_path / "results" / table, ignore=shutil.ignore_patterns("*.png"))
    with pytest.raises(SystemExit, match="is not what its result files give: run `bort results`"):
        results(check=True)
    results()
    assert capsys.readouterr().out == (
        "results/RESULTS.md, results/table1.md, results/ablation.md, results/ablation/grid.png written\n"
    )
    assert (tmp_path / "results/ablation/grid.png").read_bytes().startswith(b"\x89PNG")
    results(check=True)
    (tmp_path / "results/table1.md").write_text("something else")
    with pytest.raises(SystemExit, match="is not what its result files give"):
        results(check=True)


def test_the_advice_names_the_folder(tmp_path):
    shutil.copytree(COMMITTED / "ablation", tmp_path / "my results/ablation")
    with pytest.raises(SystemExit, match="run `bort results 'my results'`"):
        results(Path("my results"), check=True)


@pytest.mark.parametrize("check", [False, True])
def test_a_folder_that_is_not_there(check):
    with pytest.raises(SystemExit, match="bort results: there is no folder nowhere"):
        results(Path("nowhere"), check=check)


def test_the_help_says_what_each_table_has(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bort", "reproduce", "--help"])
    with pytest.raises(SystemExit):
        main()
    shown = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    for name, content in TABLES.items():
        assert f"{name}: {content}" in shown


def test_a_damaged_result_file(tmp_path):
    (tmp_path / "results/table1").mkdir(parents=True)
    (tmp_path / "results/table1/bad.json").write_text("{")
    with pytest.raises(SystemExit, match=r"bort results: .*bad\.json is damaged"):
        results()


def test_a_row_that_is_not_there():
    with pytest.raises(SystemExit, match="bort reproduce: no row of table1 has 'vgg' in its name"):
        reproduce("table1", only="vgg")


def test_table_2_has_no_quick_form():
    with pytest.raises(SystemExit, match="bort reproduce: table2 has no quick form"):
        reproduce("table2", quick=True)


def test_an_interrupted_training_exits_with_its_code(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise train.Interrupted(signal.SIGTERM, 7, "runs/x")

    monkeypatch.setattr("bort.reproduce.reproduce", interrupted)
    with pytest.raises(SystemExit) as stop:
        reproduce("table1", quick=True)
    assert stop.value.code == train.Interrupted.EXIT_CODE == 75
    assert "stopped by SIGTERM at step 7" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
