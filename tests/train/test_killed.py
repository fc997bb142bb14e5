"""Killed at any moment, with checkpoints damaged in any way: the run goes on from the last good one, or says why not."""

import os
import pickle
import signal
from dataclasses import replace

import pytest

from bort import train
from bort.train.recipes import Net
from tests.train.processes import start
from tests.train.small import RECIPE, assert_same, fit, lenet_with_dropout, saved_steps, stop_at

BUILT = []
"""The networks that `remembered_lenet` has built."""


def remembered_lenet(**shape):
    BUILT.append(lenet_with_dropout(**shape))
    return BUILT[-1]


@pytest.mark.slow
def test_sigkill_at_a_step(whole, tmp_path):
    setup = "def on_step(step):\n    if step == 8: os.kill(os.getpid(), signal.SIGKILL)"
    killed = start(tmp_path, setup, save_steps=3)
    assert killed.wait() == -signal.SIGKILL
    assert saved_steps(tmp_path)[-1] == 6
    steps = []
    assert_same(fit(tmp_path, on_step=steps.append), whole)
    assert steps[0] == 7


@pytest.mark.slow
def test_sigkill_while_saving(whole, tmp_path):
    """Half of the second checkpoint is on the disk: it is ignored, removed, and the first one is used."""
    setup = """
on_step, real = None, os.fsync
def fsync(descriptor):
    real(descriptor)
    if ".writing-000000008" in os.readlink(f"/proc/self/fd/{descriptor}"): os.kill(os.getpid(), signal.SIGKILL)
os.fsync = fsync
"""
    killed = start(tmp_path, setup, save_steps=4)
    assert killed.wait() == -signal.SIGKILL
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert len(names) == 2
    assert names[0].startswith(".writing-000000008")
    assert names[1] == "step-000000004"
    steps = []
    assert_same(fit(tmp_path, on_step=steps.append), whole)
    assert steps[0] == 5
    assert not list((tmp_path / "checkpoints").glob(".writing-*"))


def truncate(file):
    file.write_bytes(file.read_bytes()[:-100])


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, flip_a_bit])
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
def test_a_damaged_checkpoint(whole, stopped, damage, name):
    damage(stopped / "checkpoints/step-000000008" / name)
    steps = []
    with pytest.warns(
        UserWarning, match=rf"{name} is damaged: its SHA-256 is \w+, it was .*Going on from step-000000004"
    ):
        run = fit(stopped, on_step=steps.append)
    assert steps[0] == 5
    assert_same(run, whole)


def test_all_checkpoints_bad(stopped):
    for path in (stopped / "checkpoints").iterdir():
        flip_a_bit(path / "tensors.safetensors")
    steps = []
    with pytest.raises(ValueError, match=r"every checkpoint in .* is damaged: .*step-000000008.*step-000000004"):
        fit(stopped, on_step=steps.append)
    assert steps == [], "never a silent restart"


def test_a_pickle_posing_as_a_checkpoint(stopped, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    for path in (stopped / "checkpoints").iterdir():
        (path / "tensors.safetensors").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="damaged"):
        fit(stopped)
    assert not (tmp_path / "executed").exists()


def test_a_damaged_recipe_or_history(stopped, whole):
    """Half a line of history is no record; half a recipe is an error."""
    history = stopped / "history.jsonl"
    history.write_text(history.read_text() + '{"epoch": 2, "los')
    assert_same(fit(stopped), whole)
    (stopped / "recipe.json").write_text('{"name": ')
    with pytest.raises(ValueError, match=r"recipe\.json is damaged"):
        fit(stopped)


def test_a_damaged_newest_does_not_outlive_good_ones(stopped, whole):
    """With keep=1 the one just written stays, whatever lies beside it."""
    truncate(stopped / "checkpoints/step-000000008" / "state.json")
    with pytest.warns(UserWarning, match="Going on from step-000000004"), pytest.raises(train.Interrupted):
        fit(stopped, on_step=stop_at(6), keep=1)
    names = sorted(path.name for path in (stopped / "checkpoints").iterdir())
    assert names[1:] == ["step-000000006"]
    assert names[0].startswith("damaged-step-000000008")
    assert_same(fit(stopped), whole)


def test_killed_while_a_step_is_saved_again(whole, tmp_path, monkeypatch):
    """A stop at the end of an epoch, then the record, then the same step again: the first is there until the second is."""
    with pytest.raises(train.Interrupted):
        fit(tmp_path, on_step=stop_at(10), keep=1)

    def die(source, target, rename=os.replace):
        if os.path.basename(target).startswith("step-"):
            raise MemoryError("killed")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        with pytest.raises(MemoryError):
            fit(tmp_path, save_steps=5, keep=1)
    assert saved_steps(tmp_path) == [10]
    assert_same(fit(tmp_path, save_steps=5, keep=1), whole)


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    def poison(step):
        if step == 6:
            BUILT[-1].conv2.weight.data[0] = float("nan")

    recipe = replace(RECIPE, net=Net(f"{__name__}:remembered_lenet"))
    with pytest.raises(train.NotFinite, match=r"the weight conv2\.weight is not finite after step 6"):
        fit(tmp_path, recipe, on_step=poison, save_steps=3)
    assert saved_steps(tmp_path) == [3]
