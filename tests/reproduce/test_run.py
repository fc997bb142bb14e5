"""Tables in their quick form, smaller still: what is there is not made again, what fails stays in the table."""

import json
from dataclasses import replace

import pytest

from bort import train
from bort.reproduce import Trained, charts, get, pages
from tests.reproduce.small import fit, make
from tests.train.small import stop_at


@pytest.mark.slow
def test_a_table_and_again(tmp_path):
    lines, files = make("table1", tmp_path)
    assert lines[0] == "table1: 0 of 4 results are there, 4 to make"
    assert sorted(file.stem for file in files) == [
        f"mnist5k-{net}-{optim}-seed0" for net in ("acnn-small", "lenet") for optim in ("bort-s", "sgd")
    ]
    run = train.load(tmp_path / "runs/mnist5k-acnn-small-bort-s-seed0")
    result = json.loads((tmp_path / "results/table1/mnist5k-acnn-small-bort-s-seed0.json").read_text())
    assert result["metrics"]["accuracy"] == run.accuracy
    assert result["commit"] == run.environment[-1]["commit"]
    assert result["data"]["fingerprint"] == run.environment[-1]["data"]["fingerprint"]
    row = f"| mnist5k-acnn-small-bort-s | – | {100 * run.accuracy:.2f} (n = 1) |"
    assert row in pages(tmp_path / "results")["table1.md"]

    before = [file.stat().st_mtime_ns for file in files]
    files[1].unlink()
    lines, again = make("table1", tmp_path)
    assert lines[0] == "table1: 3 of 4 results are there, 1 to make"
    assert again == files
    after = [file.stat().st_mtime_ns for file in files]
    assert (after[0], *after[2:]) == (before[0], *before[2:])

    result["recipe"]["epochs"] += 1
    other = tmp_path / "results/table1/mnist5k-acnn-small-bort-s-seed0.json"
    other.write_text(json.dumps(result))
    lines, _ = make("table1", tmp_path)
    assert lines[0].endswith("is of another recipe than mnist5k-acnn-small-bort-s is now: it is made again")
    assert lines[1] == "table1: 3 of 4 results are there, 1 to make"
    assert json.loads(other.read_text())["recipe"]["epochs"] == result["recipe"]["epochs"] - 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:param group 0. weight decay")  # part of the grid is there to show it
@pytest.mark.filterwarnings("ignore:param group 0. lr·λ")  # a pull of 15 in the few steps of a test
@pytest.mark.parametrize("table", ["table3", "figures", "ablation", "lenet", "settings", "deep", "pull"])
def test_every_other_table(tmp_path, table):
    _, files = make(table, tmp_path)
    given = pages(tmp_path / "results")
    text = given[f"{table}.md"]
    drawn = charts(tmp_path / "results")
    for chart in drawn:
        assert f"({table}/{chart.name})" in given["RESULTS.md"]
    assert [chart.name for chart in drawn] == [f"{name}.png" for name in get(table).charts]
    assert len(files) == len(get(table).experiments(True))
    for file in files:
        result = json.loads(file.read_text())
        assert result["failed"] == ""
        assert f"({table}/{file.name})" in text, "every number can be traced"
        if "pictures" in result["metrics"]:
            for name in (picture["name"] for picture in result["metrics"]["pictures"]):
                assert (file.with_suffix("") / f"{name}.png").read_bytes().startswith(b"\x89PNG")
                assert f"({table}/{file.stem}/{name}.png)" in text
        else:
            assert _number(table, result["metrics"]) in text


def _number(table, metrics):
    """One that its section must show."""
    if table == "table3":
        return f"{metrics['methods']['sat']['relative deletion'][0]:.3f}"
    if table == "figures":
        return f"{metrics['layers'][0]['ratio']:.2f}"
    return f"{100 * metrics['accuracy']:.2f}"


def test_an_interrupted_training_is_continued(tmp_path):
    def interrupted(recipe, out, runtime):
        return fit(recipe, out, runtime, on_step=stop_at(2))

    with pytest.raises(train.Interrupted):
        make("table1", tmp_path, only="lenet-sgd", fit=interrupted)
    assert not (tmp_path / "results").exists(), "no result of half a training"
    steps = []

    def counted(recipe, out, runtime):
        return fit(recipe, out, runtime, on_step=steps.append)

    make("table1", tmp_path, only="lenet-sgd", fit=counted)
    assert steps[0] == 3
    assert (tmp_path / "results/table1/mnist5k-lenet-sgd-seed0.json").exists()


def test_a_training_of_another_recipe_is_set_aside(tmp_path):
    """As of an earlier version, under the same name: nothing of it is lost."""

    def faster(recipe, out, runtime):
        return fit(replace(recipe, optim=replace(recipe.optim, lr=0.02)), out, runtime)

    _, (file,) = make("table1", tmp_path, only="lenet-sgd")
    run = tmp_path / "runs" / file.stem
    first = train.load(run).history
    for number, training in ((1, faster), (2, fit)):
        file.unlink()
        lines, _ = make("table1", tmp_path, only="lenet-sgd", fit=training)
        assert lines[-1] == f"{run} has a training of another recipe: it is now {run}-before-{number}"
    assert train.load(f"{run}-before-1").history == first
    assert [train.read_recipe(f"{run}{end}").optim.lr for end in ("", "-before-1", "-before-2")] == [0.01, 0.01, 0.02]


class Waits(Exception):
    """Raised where a process would wait."""


@pytest.fixture
def waits(monkeypatch):
    def sleep(seconds):
        raise Waits

    monkeypatch.setattr("time.sleep", sleep)


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("where", ["training", "measuring"])
def test_two_processes_share_a_table(tmp_path, where):
    """What one trains or measures the other leaves to it; what the other has made meanwhile is not made again."""
    trained, said = [], []

    def logged(recipe, out, runtime):
        trained.append(recipe.name)
        return fit(recipe, out, runtime)

    def other_process():
        with pytest.raises(Waits):
            make("table1", tmp_path, only="lenet", fit=logged, say=said.append)

    class Run:
        def __init__(self, run):
            self._run = run

        @property
        def history(self):
            other_process()
            return self._run.history

    def first(recipe, out, runtime):
        run = logged(recipe, out, runtime)
        if where == "training":
            other_process()
            return run
        return Run(run)

    lines, files = make("table1", tmp_path, only="lenet", fit=first)
    assert trained == ["mnist5k-lenet-sgd", "mnist5k-lenet-bort-s"], "each once"
    assert all(file.exists() for file in files)
    assert lines == [
        "table1: 0 of 2 results are there, 2 to make",
        "table1 1/2: mnist5k-lenet-sgd-seed0",
        "table1 2/2: mnist5k-lenet-bort-s-seed0 has been made by another process",
    ]
    (busy,) = [line for line in said if "later" in line]
    assert busy.startswith("table1 1/2: mnist5k-lenet-sgd-seed0 later: another process is at it (process ")


def test_the_ranks_of_one_training_do_not_wait_for_each_other(tmp_path, monkeypatch):
    """They are at the same row at the same time."""
    trained = []

    def other_rank_too(recipe, out, runtime):
        trained.append(recipe.name)
        if len(trained) == 1:
            make("table1", tmp_path, only="lenet-sgd", fit=other_rank_too)
        monkeypatch.delenv("WORLD_SIZE", raising=False)  # the training itself has one here
        return fit(recipe, out, runtime)

    monkeypatch.setenv("WORLD_SIZE", "2")
    _, (file,) = make("table1", tmp_path, only="lenet-sgd", fit=other_rank_too)
    assert trained == ["mnist5k-lenet-sgd"] * 2
    assert file.exists()


@pytest.mark.usefixtures("waits")
def test_the_first_of_several_ranks_does_not_leave_the_others_in_a_row_that_is_busy(tmp_path, monkeypatch):
    asked = []

    def busy(recipe, out, runtime):
        asked.append(recipe.name)
        raise train.InUse("another run is writing there")

    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(train.InUse, match="another run is writing there"):
        make("table1", tmp_path, only="lenet", fit=busy)
    assert asked == ["mnist5k-lenet-sgd"], "no other row is begun"


def test_a_training_that_another_command_has_is_waited_for(tmp_path, monkeypatch):
    """`bort train` in the same folder holds no row, but the training."""
    asked, slept = [], []

    def busy(recipe, out, runtime):
        asked.append(recipe.name)
        if asked.count("mnist5k-lenet-sgd") < 3 and recipe.name == "mnist5k-lenet-sgd":
            raise train.InUse("another run is writing there")
        return fit(recipe, out, runtime)

    monkeypatch.setattr("time.sleep", slept.append)
    lines, files = make("table1", tmp_path, only="lenet", fit=busy)
    sgd, bort = "mnist5k-lenet-sgd", "mnist5k-lenet-bort-s"
    assert asked == [sgd, bort, sgd, sgd]
    assert len(slept) == 1, "only when there is nothing else to do"
    assert sum("later: another run is writing there" in line for line in lines) == 1
    assert sum(line.endswith(f"{sgd}-seed0") for line in lines) == 1, "however often it is tried"
    assert all(file.exists() for file in files)


@pytest.mark.parametrize(
    ("table", "only", "shown"),
    [
        ("table1", "lenet-sgd", "– (n = 0, 1 failed)"),
        ("table3", "lenet-sgd", "- mnist5k-lenet-sgd, seed 0: failed, the loss is nan"),
        ("figures", "lenet-sgd", "- mnist5k-lenet-sgd, seed 0: failed, the loss is nan"),
        ("figures", "drawn", "- mnist5k-lenet-bort-s, seed 0: failed, the loss is nan"),
    ],
)
def test_a_training_that_diverges_stays_in_the_table(tmp_path, table, only, shown):
    def diverging(recipe, out, runtime):
        raise train.NotFinite("the loss is nan at step 7")

    _, (file,) = make(table, tmp_path, only=only, fit=diverging)
    result = json.loads(file.read_text())
    assert (result["failed"], result["metrics"]) == ("the loss is nan at step 7", {})
    assert shown in pages(tmp_path / "results")[f"{table}.md"]
    assert charts(tmp_path / "results") == []


def test_a_seed_that_the_table_does_not_have(tmp_path):
    _, (file,) = make("table1", tmp_path, only="lenet-sgd", seeds=(5,))
    assert file.stem == "mnist5k-lenet-sgd-seed5"
    assert train.load(tmp_path / f"runs/{file.stem}").recipe.seed == 5
    command = json.loads(file.read_text())["command"]
    assert command == "bort reproduce table1 --only mnist5k-lenet-sgd-seed5 --quick --seeds 5"


def test_the_command_compiles_as_the_training_did(tmp_path):
    def diverging(recipe, out, runtime):
        raise train.NotFinite("the loss is nan")

    runtime = train.Runtime(device="cpu", compile=True)
    _, (file,) = make("table1", tmp_path, runtime, only="lenet-sgd", fit=diverging)
    command = json.loads(file.read_text())["command"]
    assert command == "bort reproduce table1 --only mnist5k-lenet-sgd-seed0 --quick --compile"


def test_a_row_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="no row of table1 has 'vgg' in its name"):
        make("table1", tmp_path, only="vgg")


def test_modern_networks_are_compared_with_random_ones(tmp_path):
    make("table1", tmp_path, only="lenet-sgd")
    run = train.load(tmp_path / "runs/mnist5k-lenet-sgd-seed0")
    measure = get("modern").experiments(False)[0].measure
    metrics = measure(Trained(run, None, "cpu", None, tmp_path), images=8, masks=20, compared=4)
    assert (
        metrics["methods"].keys() == metrics["similarity"].keys() == {"cam", "guided-ig", "ig", "rise", "sat", "xrai"}
    )
    assert metrics["random_map"].keys() == metrics["methods"]["ig"].keys() - {"seconds"}
    assert all(-1 <= value <= 1 for pair in metrics["similarity"].values() for value in pair)
    assert (metrics["images"], metrics["compared"]) == (8, 4)
