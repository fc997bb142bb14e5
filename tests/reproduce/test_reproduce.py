"""`bort reproduce --quick` as typed, in smaller still; what is there is not run again; what fails stays in the table."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bort import train
from bort.cli import main
from bort.reproduce import PLANS, results
from bort.reproduce._cells import mean
from bort.reproduce._evidence import _verdict
from tests.train.small import dataset, stop_at

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def bort(monkeypatch, tmp_path):
    """The small recipes for one epoch of 150 images, and narrow."""
    real = train.recipes.get

    def get(name):
        recipe = real(name)
        if not name.startswith("mnist5k"):
            return recipe
        net = replace(recipe.net, width=0.05, narrowest=4) if "acnn" in recipe.net.name else recipe.net
        return replace(recipe, epochs=1, net=net)

    monkeypatch.setattr("bort.train.recipes.get", get)
    for place in ("_fit", "_examples", "_view"):
        monkeypatch.setattr(f"bort.train.{place}.data_of", lambda *_: dataset())
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["bort", *map(str, arguments)])
        main()

    return call


def test_the_committed_results_are_what_their_files_give():
    assert (REPOSITORY / "results/RESULTS.md").read_text() == results(REPOSITORY / "results"), "run `bort results`"


def test_every_result_can_be_traced():
    for file in (REPOSITORY / "results").rglob("*.json"):
        result = json.loads(file.read_text())
        plan = PLANS[result["table"]]
        names = {job.name for job in plan.jobs(result["quick"], (result["seed"],))}
        assert file.stem in names, f"no job makes {file}"
        more = "" if result["seed"] in plan.seeds else f" --seeds {result['seed']}"
        assert result["command"] == f"bort reproduce {result['table']} --only {file.stem}{more}"
        assert len(result["commit"]) >= 7
        assert "dirty" not in result["commit"]
        assert len(result["data"]["fingerprint"]) == 64
        assert {"torch", "bort"} <= result["versions"].keys()
        train.Recipe.from_dict(result["recipe"])


@pytest.mark.slow
def test_a_table_and_again(bort, tmp_path, capsys):
    bort("reproduce", "table1", "--quick", "--device", "cpu")
    files = sorted((tmp_path / "results/quick/table1").glob("*.json"))
    assert [f.stem for f in files] == [
        f"mnist5k-{net}-{optim}-seed0" for net in ("acnn-small", "lenet") for optim in ("bort-s", "sgd")
    ]
    first = json.loads(files[0].read_text())
    run = train.load(tmp_path / "runs/reproduce-quick/mnist5k-acnn-small-bort-s-seed0")
    assert first["metrics"]["accuracy"] == run.accuracy
    text = (tmp_path / "results/quick/RESULTS.md").read_text()
    assert f"| mnist5k-acnn-small-bort-s | – | {100 * run.accuracy:.2f} (n = 1) |" in text
    before = [f.stat().st_mtime_ns for f in files]
    capsys.readouterr()
    files[1].unlink()
    bort("reproduce", "table1", "--quick", "--device", "cpu")
    assert "3 of 4 results are there, 1 to make" in capsys.readouterr().out
    assert [f.stat().st_mtime_ns for f in files][2:] == before[2:]
    bort("results", "results/quick", "--check")
    (tmp_path / "results/quick/RESULTS.md").write_text("something else")
    with pytest.raises(SystemExit, match="is not what its result files give"):
        bort("results", "results/quick", "--check")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:param group 0. weight decay")  # a part of the grid is there to show it
@pytest.mark.parametrize("table", ["table3", "figures", "ablation", "lenet", "settings", "deep"])
def test_the_others(bort, tmp_path, table):
    bort("reproduce", table, "--quick", "--device", "cpu")
    text = (tmp_path / "results/quick/RESULTS.md").read_text()
    files = sorted((tmp_path / "results/quick" / table).glob("*.json"))
    assert len(files) == len(PLANS[table].jobs(True, (0,)))
    for file in files:
        result = json.loads(file.read_text())
        assert result["failed"] == ""
        assert f"({table}/{file.name})" in text, "every figure can be traced"
        pictures = result["metrics"].get("pictures", [])
        for name in (each["name"] for each in pictures):
            picture = file.with_suffix("") / f"{name}.png"
            assert picture.read_bytes().startswith(b"\x89PNG")
            assert f"({table}/{file.stem}/{name}.png)" in text
        if pictures:
            continue
        shown = {
            "table3": lambda m: f"{m['methods']['sat']['relative deletion'][0]:.3f}",
            "figures": lambda m: f"{m['layers'][0]['ratio']:.2f}",
        }.get(table, lambda m: f"{100 * m['accuracy']:.2f}")(result["metrics"])
        assert shown in text


def test_stopped_and_gone_on(bort, tmp_path, monkeypatch, capsys):
    real = train.fit
    monkeypatch.setattr(
        "bort.reproduce._plan.train.fit", lambda recipe, out, how: real(recipe, out, how, on_step=stop_at(2))
    )
    with pytest.raises(SystemExit) as stop:
        bort("reproduce", "table1", "--quick", "--device", "cpu", "--only", "lenet-sgd")
    assert stop.value.code == 75
    assert not (tmp_path / "results").exists(), "no result of half a training"
    monkeypatch.setattr("bort.reproduce._plan.train.fit", real)
    capsys.readouterr()
    bort("reproduce", "table1", "--quick", "--device", "cpu", "--only", "lenet-sgd")
    assert "going on after step 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "said"),
    [("table1", "– (n = 0, 1 failed)"), ("table3", "failed, the loss"), ("figures", "failed, the loss")],
)
def test_a_run_that_diverges_stays_in_the_table(bort, tmp_path, monkeypatch, table, said):
    def diverge(recipe, out, how):
        raise train.NotFinite("the loss is nan at step 7")

    monkeypatch.setattr("bort.reproduce._plan.train.fit", diverge)
    bort("reproduce", table, "--quick", "--only", "lenet-sgd")
    result = json.loads((tmp_path / f"results/quick/{table}/mnist5k-lenet-sgd-seed0.json").read_text())
    assert result["failed"] == "the loss is nan at step 7"
    assert said in (tmp_path / "results/quick/RESULTS.md").read_text()


def test_mistakes(bort, tmp_path):
    with pytest.raises(SystemExit, match="no row of table1 has 'vgg' in its name"):
        bort("reproduce", "table1", "--only", "vgg")
    (tmp_path / "results/table1").mkdir(parents=True)
    (tmp_path / "results/table1/bad.json").write_text("{")
    with pytest.raises(SystemExit, match=r"bad\.json is damaged"):
        bort("results")


def test_the_plans_are_the_papers():
    assert len(PLANS["table1"].jobs(False, (0, 1, 2))) == 8 * 3
    assert len(PLANS["table2"].jobs(False, (0, 1))) == 14 * 2
    rows = {job.recipe.name for job in PLANS["table3"].jobs(False, (0,))}
    assert {"mnist-acnn-small-sgd", "cifar10-acnn-small-bort-s"} <= rows
    grid = {(j.recipe.optim.weight_decay, j.recipe.optim.constraint) for j in PLANS["ablation"].jobs(False, (0,))}
    assert len(grid) == 16
    for plan in PLANS.values():
        names = [job.name for job in plan.jobs(False, (0, 1))]
        assert len(names) == len(set(names))


def test_several_seeds_are_averaged(tmp_path):
    for name in ("table3", "lenet"):
        shutil.copytree(REPOSITORY / "results" / name, tmp_path / name)
    for file in (*tmp_path.glob("table3/mnist*"), *tmp_path.glob("lenet/mnist-lenet-relu-max-momentum0-raw-*")):
        other = json.loads(file.read_text()) | {"seed": 1}
        other["metrics"]["accuracy"] = 0.0
        for method in other["metrics"].get("methods", {}).values():
            method["relative deletion"] = [9.0, 0.0]
        file.with_name(file.name.replace("seed0", "seed1")).write_text(json.dumps(other))
    first = json.loads((tmp_path / "table3/mnist-acnn-small-sgd-seed0.json").read_text())
    area = first["metrics"]["methods"]["sat"]["relative deletion"][0]
    text = results(tmp_path)
    assert f"| mnist-acnn-small | sat | {(area + 9) / 2:.3f} |" in text
    assert "(n = 2)" in text


def test_a_seed_of_ones_own(bort, tmp_path):
    bort("reproduce", "table1", "--quick", "--only", "lenet-sgd", "--seeds", 5, "--device", "cpu")
    result = json.loads((tmp_path / "results/quick/table1/mnist5k-lenet-sgd-seed5.json").read_text())
    assert result["command"] == "bort reproduce table1 --only mnist5k-lenet-sgd-seed5 --quick --seeds 5"
    with pytest.raises(SystemExit, match="table2 has no quick form"):
        bort("reproduce", "table2", "--quick")


def test_means_and_verdicts():
    assert mean([98.0, 99.0]) == "98.50 ± 0.71 (n = 2)"
    assert mean([], failed=2) == "– (n = 0, 2 failed)"
    assert _verdict([0.5, 0.01], [0.45, 0.01], lower=True) == "better"
    assert _verdict([0.5, 0.01], [0.45, 0.01], lower=False) == "worse"
    assert _verdict([0.5, 0.03], [0.45, 0.01], lower=True) == "="
