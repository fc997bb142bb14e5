"""Result files: what was committed, and what is written today."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bort import train
from bort.reproduce import TABLES, Result, charts, get, pages

COMMITTED = Path(__file__).parents[2] / "results"


def test_the_pages_are_what_the_committed_files_give():
    given = pages(COMMITTED)
    assert {file.name for file in COMMITTED.glob("*.md")} == given.keys()
    for name, text in given.items():
        assert (COMMITTED / name).read_text() == text, "run `bort results`"


def test_the_page_of_all_results_is_short():
    """What it leaves out is on the pages that it links to."""
    given = pages(COMMITTED)
    assert len(given["RESULTS.md"].splitlines()) < 150
    assert all(f"({name})" in given["RESULTS.md"] for name in given if name != "RESULTS.md")


@pytest.mark.parametrize("table", TABLES)
def test_every_committed_result_can_be_made_again(table):
    """An experiment of today has its file, its note and, to the last setting, its recipe."""
    committed = Result.read(COMMITTED / table)
    experiments = {e.stem: e for e in get(table).seeded(quick=False, seeds={result.seed for result in committed})}
    for result in committed:
        experiment = experiments[result.stem]
        assert (experiment.recipe, experiment.note) == (result.recipe, result.note), result.file
        seeds = "" if result.seed in get(table).seeds_for(experiment, quick=False) else f" --seeds {result.seed}"
        command = result.command.removesuffix(" --compile")
        assert command == f"bort reproduce {table} --only {result.stem}{seeds}"
        assert (result.table, result.quick) == (table, False)
        assert len(result.commit) >= 7
        assert "dirty" not in result.commit
        assert len(result.data["fingerprint"]) == 64
        assert {"torch", "bort"} <= result.versions.keys()


@pytest.fixture
def result():
    recipe = replace(train.recipes.get("mnist5k-lenet-bort-s"), seed=3)
    metrics = {"accuracy": 0.5, "residual": 0.1, "seconds": 7.0}
    return Result("table1", recipe, metrics, "table1/mnist5k-lenet-bort-s-seed3.json", note="λ", commit="0123456")


def test_what_is_written_is_read_back(result, tmp_path):
    file = result.write(tmp_path)
    assert Result.read(tmp_path / "table1") == [result]
    values = json.loads(file.read_text())
    assert list(values) == list(json.loads(next(COMMITTED.glob("table1/*.json")).read_text())), "the format of 0.1.0"
    assert (values["row"], values["seed"], values["seconds"]) == ("mnist5k-lenet-bort-s", 3, 7.0)


def test_what_is_not_a_number_is_null(result, tmp_path):
    """JSON has no NaN. Files of earlier versions may have some."""
    measured = {
        "accuracy": 0.5,
        "methods": {"sat": {"relative deletion": [math.nan, 0.0]}},
        "similarity": [math.inf, 1],
    }
    file = replace(result, metrics=measured).write(tmp_path)
    expected = {"accuracy": 0.5, "methods": {"sat": {"relative deletion": [None, 0.0]}}, "similarity": [None, 1]}
    assert json.loads(file.read_text(), parse_constant=pytest.fail)["metrics"] == expected
    assert Result.read_file(file).metrics == expected
    file.write_text(file.read_text().replace("null", "NaN"))
    assert Result.read_file(file).metrics == expected


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda text: text[:-20], "Expecting|Unterminated"),
        (lambda text: text.replace('"metrics"', '"other"'), "it has no 'metrics'"),
        (lambda text: text.replace('"epochs"', '"epoch"'), "recipe has no field 'epoch'"),
        (lambda text: "[]", "list indices"),
    ],
)
def test_a_damaged_file_is_named(result, tmp_path, damage, problem):
    file = result.write(tmp_path)
    file.write_text(damage(file.read_text()))
    with pytest.raises(ValueError, match=rf"seed3\.json is damaged: .*({problem}).*Remove it"):
        pages(tmp_path)


def test_an_empty_folder_says_what_to_do(tmp_path):
    assert "There are no results yet: `bort reproduce table1`" in pages(tmp_path)["RESULTS.md"]
    assert charts(tmp_path) == []
