"""Everything that can happen to a training, and what then happens."""

import errno
import os
import pty
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bort import train
from bort.train import _checkpoint, _history
from tests.train.small import RECIPE, assert_same, fit

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, signal, sys, time
from unittest import mock
import torch
torch.set_num_threads(1)
from bort.train import Interrupted, _checkpoint
from tests.train.small import fit
out = sys.argv[1]
{setup}
try:
    fit(out, on_step=on_step, save_steps={save_steps})
except Interrupted as stop:
    print(stop, flush=True)
    sys.exit(Interrupted.EXIT_CODE)
"""


def start(out, setup, save_steps="None", **options):
    script = SCRIPT.format(setup=setup, save_steps=save_steps)
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-c", script, str(out)],
        env=environment,
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=options.pop("stderr", subprocess.PIPE),
        text=True,
        **options,
    )


def wait_for(path, seconds=60):
    for _ in range(10 * seconds):
        if path.exists():
            return
        time.sleep(0.1)
    raise TimeoutError(f"{path} did not appear")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("whole"))


# --- killed


@pytest.mark.slow
def test_sigkill_at_a_step(whole, tmp_path):
    setup = "def on_step(step):\n    if step == 8: os.kill(os.getpid(), signal.SIGKILL)"
    killed = start(tmp_path, setup, save_steps=3)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert _checkpoint.load(tmp_path / "checkpoints").step == 6
    steps = []
    assert_same(fit(tmp_path, on_step=steps.append), whole)
    assert steps[0] == 7


@pytest.mark.slow
def test_sigkill_while_saving(whole, tmp_path):
    """Half of the second checkpoint is on the disk: it is ignored, swept, and the first one is used."""
    setup = """
on_step, real = None, os.fsync
def fsync(descriptor):
    real(descriptor)
    if ".writing-000000008" in os.readlink(f"/proc/self/fd/{descriptor}"): os.kill(os.getpid(), signal.SIGKILL)
os.fsync = fsync
"""
    killed = start(tmp_path, setup, save_steps=4)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert len(names) == 2
    assert names[0].startswith(".writing-000000008")
    assert names[1] == "step-000000004"
    steps = []
    assert_same(fit(tmp_path, on_step=steps.append), whole)
    assert steps[0] == 5
    assert not list((tmp_path / "checkpoints").glob(".writing-*"))


# --- damaged


@pytest.fixture
def stopped(tmp_path):
    """A run with checkpoints of steps 4 and 8, stopped at 9."""

    def die(step):
        if step == 9:
            raise MemoryError

    with pytest.raises(MemoryError):
        fit(tmp_path, on_step=die, save_steps=4)
    return tmp_path


def damage(file, how):
    content = bytearray(file.read_bytes())
    if how == "truncated":
        del content[-100:]
    elif how == "bit-flipped":
        content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("how", ["truncated", "bit-flipped"])
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
def test_a_damaged_checkpoint(whole, stopped, how, name):
    damage(stopped / "checkpoints/step-000000008" / name, how)
    steps = []
    with pytest.warns(
        UserWarning, match=rf"{name} is damaged: its SHA-256 is \w+, it was .*Going on from step-000000004"
    ):
        run = fit(stopped, on_step=steps.append)
    assert steps[0] == 5
    assert_same(run, whole)


def test_all_checkpoints_bad(stopped):
    for path in (stopped / "checkpoints").iterdir():
        damage(path / "tensors.safetensors", "bit-flipped")
    steps = []
    with pytest.raises(ValueError, match=r"every checkpoint in .* is damaged: .*step-000000008.*step-000000004"):
        fit(stopped, on_step=steps.append)
    assert steps == [], "never a silent restart"


def test_a_pickle_posing_as_a_checkpoint(stopped, tmp_path):
    import pickle

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
    damage(stopped / "checkpoints/step-000000008" / "state.json", "truncated")
    stop = lambda step: signal.raise_signal(signal.SIGTERM) if step == 6 else None  # noqa: E731
    with pytest.warns(UserWarning, match="Going on from step-000000004"), pytest.raises(train.Interrupted):
        fit(stopped, on_step=stop, keep=1)
    names = sorted(path.name for path in (stopped / "checkpoints").iterdir())
    assert names[1:] == ["step-000000006"]
    assert names[0].startswith("damaged-step-000000008")
    assert_same(fit(stopped), whole)


def test_killed_while_a_step_is_saved_again(whole, tmp_path, monkeypatch):
    """A stop at the end of an epoch, then the record, then the same step again: the first is there until the second is."""
    stop = lambda step: signal.raise_signal(signal.SIGTERM) if step == 10 else None  # noqa: E731
    with pytest.raises(train.Interrupted):
        fit(tmp_path, on_step=stop, keep=1)

    def die(*_):
        raise MemoryError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(_checkpoint.os, "replace", die)
        with pytest.raises(MemoryError):
            _checkpoint.save(tmp_path / "checkpoints", 10, {}, keep=1)
    assert _checkpoint.load(tmp_path / "checkpoints").step == 10
    assert_same(fit(tmp_path, save_steps=5, keep=1), whole)


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    net = {}

    def build(recipe):
        from tests.train.small import build as plain

        net["it"] = plain(recipe)
        return net["it"]

    def poison(step):
        if step == 6:
            net["it"].conv2.weight.data[0] = float("nan")

    with pytest.raises(train.NotFinite, match=r"the weight conv2\.weight is not finite after step 6"):
        fit(tmp_path, network=build, on_step=poison, save_steps=3)
    assert _checkpoint.load(tmp_path / "checkpoints").step == 3


# --- no room, no right


def test_disk_full(stopped, whole, monkeypatch):
    real = os.fsync

    def full(descriptor):
        if ".writing-" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(_checkpoint.os, "fsync", full)
        with pytest.raises(
            OSError, match=r"no checkpoint of step 12 in .*: No space left on device; earlier ones are intact"
        ):
            fit(stopped, save_steps=4)
    assert sorted(path.name for path in (stopped / "checkpoints").iterdir()) == ["step-000000004", "step-000000008"]
    assert_same(fit(stopped), whole)


@pytest.mark.slow
def test_writing_really_fails(whole, tmp_path):
    """The system refuses files of more than 50 kB from step 6 on; a checkpoint has ten times that."""
    setup = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def on_step(step):
    if step == 6: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
"""
    run = start(tmp_path, setup, save_steps=4)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "no checkpoint of step 8 in" in errors
    assert "File too large; earlier ones are intact" in errors
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000004"]
    assert_same(fit(tmp_path), whole)


def test_history_cannot_be_written(tmp_path, monkeypatch):
    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def write(self, _):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_history.Path, "open", lambda *_: Full())
    with pytest.raises(
        OSError, match=r"cannot write .*history\.jsonl: No space left on device; checkpoints are intact"
    ):
        _history.History(tmp_path / "history.jsonl").add({})


def test_read_only_directory(tmp_path, monkeypatch):
    """As root one may write everywhere, so the refusal is played."""
    from bort.train import _run

    def refuse(self, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(_run.Path, "mkdir", refuse)
    with pytest.raises(OSError, match=r"cannot write a run into .*: Permission denied"):
        fit(tmp_path / "run")


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file; a run needs a folder"):
        fit(tmp_path / "file")


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("ten years of work")
    with pytest.raises(ValueError, match="has files in it but is not a run"):
        fit(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


# --- signals


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_from_outside(whole, tmp_path, how):
    """In a step: a checkpoint of that step, and an exit code of its own."""
    setup = """
def on_step(step):
    if step == 7:
        open(out + "/here", "w").close()
        time.sleep(60)  # a handler of Python's ends no sleep
"""
    run = start(tmp_path, setup.replace("time.sleep(60)", "[time.sleep(0.1) for _ in range(20)]"))
    wait_for(tmp_path / "here")
    run.send_signal(how)
    output, errors = run.communicate(timeout=60)
    assert run.returncode == 75, errors
    assert f"stopped by {how.name} at step 7, with a checkpoint in" in output
    (tmp_path / "here").unlink()
    steps = []
    assert_same(fit(tmp_path, on_step=steps.append), whole)
    assert steps[0] == 8


@pytest.mark.slow
def test_a_second_signal_leaves_at_once(tmp_path):
    setup = """
def on_step(step):
    if step == 7:
        open(out + "/here", "w").close()
        while True: time.sleep(0.05)
"""
    run = start(tmp_path, setup)
    wait_for(tmp_path / "here")
    run.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert run.poll() is None, "the first is only noted"
    began = time.monotonic()
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=10)
    assert run.returncode == 128 + signal.SIGTERM
    assert time.monotonic() - began < 5
    assert not (tmp_path / "checkpoints").exists()


# --- another recipe, another world, another run, other data


def test_another_recipe(stopped, whole):
    other = replace(RECIPE, epochs=4, optim=replace(RECIPE.optim, lr=0.03))
    with pytest.raises(
        ValueError, match=r"was started differently: optim\.lr: 0\.02 → 0\.03; epochs: 3 → 4\..*--force"
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
    other = lambda recipe: __import__("bort").nets.create("acnn-small", width=0.02)  # noqa: E731
    with pytest.raises(
        ValueError, match=r"the checkpoint is of another network: conv1\.weight is \(6, 1, 5, 5\), the recipe's"
    ):
        fit(stopped, replace(RECIPE, seed=1), network=other, force=True)
    assert '"seed": 0' in (stopped / "recipe.json").read_text(), "the run is as it was"


def test_fewer_epochs_than_done(whole, capsys):
    run = fit(whole.path, replace(RECIPE, epochs=2), force=True)
    assert "is complete already" in capsys.readouterr().out
    assert len(run.history) == 3
    fit(whole.path, RECIPE, force=True)


def test_another_world_size(stopped, monkeypatch):
    environment = stopped / "environment.json"
    environment.write_text(environment.read_text().replace('"processes": 1', '"processes": 4'))
    with pytest.raises(ValueError, match=r"was started differently: processes: 4 → 1"):
        fit(stopped)
    assert fit(stopped, force=True).is_complete


def test_other_data(stopped):
    from tests.train.small import dataset

    other = replace(dataset(), fingerprint="f" * 64)
    with pytest.raises(
        ValueError, match=r"is not the data that the run in .* was started with \(SHA-256 ffffffffffff…"
    ):
        fit(stopped, data=lambda: other)
    assert fit(stopped, data=lambda: other, force=True).is_complete


def test_two_runs_into_one_directory(tmp_path):
    def second(step):
        if step == 3:
            with pytest.raises(RuntimeError, match=rf"another run is writing into .* \(process {os.getpid()} on "):
                fit(tmp_path)

    assert fit(tmp_path, on_step=second).is_complete
    assert len((tmp_path / "environment.json").read_text().split("started")) == 2, "the second has left no trace"


def test_the_folder_goes_away(tmp_path):
    import shutil

    def remove(step):
        if step == 2:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(FileNotFoundError, match="has been removed or emptied while it was running"):
        fit(tmp_path / "run", on_step=remove, save_steps=3)
    assert not (tmp_path / "run").exists()


def test_a_start_that_failed_can_be_repeated(whole, tmp_path, monkeypatch):
    real = _history.Path.write_text

    def full(self, text, *args, **kwargs):
        real(self, text[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(_history.Path, "write_text", full)
        with pytest.raises(OSError, match=r"cannot write .*recipe\.json: No space left on device"):
            fit(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/recipe.writing").write_text("half")  # what a kill at that moment leaves
    assert_same(fit(tmp_path / "run"), whole)


# --- nobody is looking


@pytest.mark.slow
def test_the_terminal_goes_away(whole, tmp_path):
    ours, theirs = pty.openpty()
    setup = """
def on_step(step):
    if step == 2:
        open(out + "/here", "w").close()
        while os.path.exists(out + "/here"): time.sleep(0.05)
"""
    run = start(tmp_path, setup, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    wait_for(tmp_path / "here")
    shown = os.read(ours, 10_000).decode()
    assert "small" in shown
    os.close(ours)
    (tmp_path / "here").unlink()
    assert run.wait(timeout=60) == 0
    assert_same(fit(tmp_path), whole)


@pytest.mark.slow
def test_the_pipe_is_closed(whole, tmp_path):
    """`bort train … | head -1`"""
    setup = """
def on_step(step):
    if step == 7:
        open(out + "/here", "w").close()
        while os.path.exists(out + "/here"): time.sleep(0.05)
"""
    with start(tmp_path, setup, stderr=subprocess.DEVNULL) as run:
        wait_for(tmp_path / "here")
        assert run.stdout.readline().startswith("small  epoch 1/3")
        run.stdout.close()
        (tmp_path / "here").unlink()
        assert run.wait(timeout=60) == 0
    assert_same(fit(tmp_path), whole)


@pytest.mark.slow
def test_errors_are_heard_although_the_pipe_is_closed(tmp_path):
    setup = """
def on_step(step):
    if step == 7:
        open(out + "/here", "w").close()
        while os.path.exists(out + "/here"): time.sleep(0.05)
    if step == 12: raise RuntimeError("something else")
"""
    with start(tmp_path, setup) as run:
        wait_for(tmp_path / "here")
        run.stdout.close()
        (tmp_path / "here").unlink()
        errors = run.stderr.read()
    assert "something else" in errors


def test_the_tracker_goes_away(whole, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    board = fit(tmp_path / "with", tensorboard=True)
    assert_same(board, whole)
    (events,) = (tmp_path / "with/tensorboard").iterdir()
    assert b"residual" in events.read_bytes()

    def broken(self, *_):
        raise ConnectionError("the tracker is gone")

    from torch.utils.tensorboard import SummaryWriter

    monkeypatch.setattr(SummaryWriter, "add_scalar", broken)
    with pytest.warns(UserWarning, match="TensorBoard is gone, training goes on without it: the tracker is gone"):
        run = fit(tmp_path / "without", tensorboard=True)
    assert_same(run, whole)


def test_without_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        _history.TensorBoard(tmp_path)


def test_interrupted_says_how_to_go_on():
    stop = train.Interrupted(signal.SIGTERM, 7, "runs/x/checkpoints")
    assert re.search(
        r"stopped by SIGTERM at step 7, with a checkpoint in runs/x/checkpoints\. The same command", str(stop)
    )
