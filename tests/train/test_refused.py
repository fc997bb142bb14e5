"""A run that was started differently, or is in use: refused, unless forced; and what force then does."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bort import train
from bort.train.recipes import Net
from tests.train import small
from tests.train.small import RECIPE, assert_same, fit


def test_another_recipe(stopped, whole):
    other = replace(RECIPE, epochs=4, optim=replace(RECIPE.optim, lr=0.03))
    with pytest.raises(
        train.OtherRecipe, match=r"was started differently: optim\.lr: 0\.02 → 0\.03; epochs: 3 → 4\..*force=True"
    ):
        fit(stopped, other)
    forced = fit(stopped, other, force=True)
    assert len(forced.history) == 4
    assert forced.recipe == other
    assert forced.history[-1]["lr"] == 0.03


@pytest.mark.parametrize("batch", [16, 64, 150])
def test_another_batch_begins_the_epoch_again(stopped, batch):
    other = replace(RECIPE, batch=batch)
    steps = []
    with pytest.warns(UserWarning, match="forced to another length of an epoch: the one under way begins again"):
        run = fit(stopped, other, force=True, on_step=steps.append)
    per_epoch = -(-150 // batch)
    assert steps == list(range(per_epoch + 1, 3 * per_epoch + 1)), "the second and the third, whole"
    assert [record["epoch"] for record in run.history] == [1, 2, 3]


@pytest.mark.parametrize("name", ["sgd", "bort-a", "bort-l"])
def test_another_optimizer_begins_its_moments_again(stopped, name):
    bort = name.startswith("bort")
    optim = replace(RECIPE.optim, name=name, constraint=0.1 if bort else 0.0, momentum=0.0 if bort else 0.9, lr=1e-3)
    with pytest.warns(UserWarning, match="forced to another optimizer: its moments begin at 0"):
        assert fit(stopped, replace(RECIPE, optim=optim), force=True).is_complete


def test_another_network_is_refused_even_by_force(stopped):
    before = (stopped / "recipe.json").read_text()
    with pytest.raises(
        ValueError, match=r"the checkpoint is of another network: conv1\.weight is \(6, 1, 5, 5\), the recipe's"
    ):
        fit(stopped, replace(RECIPE, net=Net("acnn-small", {"width": 0.125, "narrowest": 72})), force=True)
    assert (stopped / "recipe.json").read_text() == before, "the run is as it was"


def test_fewer_epochs_than_done(whole, capsys):
    before = [(whole.path / name).read_bytes() for name in ("environment.json", "recipe.json")]
    run = fit(whole.path, replace(RECIPE, epochs=2), force=True)
    assert "is complete already" in capsys.readouterr().out
    assert len(run.history) == 3
    fit(whole.path, RECIPE)
    assert before == [(whole.path / name).read_bytes() for name in ("environment.json", "recipe.json")], (
        "nothing was trained"
    )


def test_another_world_size(stopped, monkeypatch):
    environment = stopped / "environment.json"
    environment.write_text(environment.read_text().replace('"processes": 1', '"processes": 4'))
    with pytest.raises(ValueError, match=r"was started differently: processes: 4 → 1"):
        fit(stopped)
    assert fit(stopped, force=True).is_complete


def test_other_data(stopped, monkeypatch):
    """The same name, and other images."""
    other = replace(small.dataset(), fingerprint="f" * 64)
    monkeypatch.setattr(small, "dataset", lambda: other)
    with pytest.raises(
        ValueError, match=r"is not the data that the run in .* was started with \(SHA-256 ffffffffffff…"
    ):
        fit(stopped)
    assert fit(stopped, force=True).is_complete


def test_two_runs_into_one_directory(tmp_path):
    def second(step):
        if step == 3:
            with pytest.raises(train.InUse, match=rf"another run is writing into .* \(process {os.getpid()} on "):
                fit(tmp_path)

    assert fit(tmp_path, on_step=second).is_complete
    assert len((tmp_path / "environment.json").read_text().split("started")) == 2, "the second has left no trace"


def test_the_folder_goes_away(tmp_path):
    def remove(step):
        if step == 2:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(FileNotFoundError, match="has been removed or emptied while it was running"):
        fit(tmp_path / "run", on_step=remove, save_steps=3)
    assert not (tmp_path / "run").exists()


def test_a_start_that_failed_can_be_repeated(whole, tmp_path, monkeypatch):
    real = Path.write_bytes

    def full(self, content):
        real(self, content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match=r"cannot write .*recipe\.json: No space left on device"):
            fit(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    for name in ("recipe.writing", "recipe.4711-1.writing"):  # what kills at that moment leave, of 0.1.0 too
        (tmp_path / "run" / name).write_text("half")
    assert_same(fit(tmp_path / "run"), whole)
    (tmp_path / "run/history.4711-1.writing").write_text("half")
    (tmp_path / "run/paper.writing").write_text("somebody's")
    fit(tmp_path / "run")
    assert [file.name for file in (tmp_path / "run").glob("*.writing")] == ["paper.writing"]
