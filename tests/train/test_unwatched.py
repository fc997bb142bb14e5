"""A terminal, a pipe or a TensorBoard that goes away does not end a training."""

import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from bort import train
from tests.train.processes import start_apart, wait_for
from tests.train.small import assert_same, fit


@pytest.mark.slow
def test_the_terminal_goes_away(whole, tmp_path):
    ours, theirs = pty.openpty()
    setup = """
def on_step(step):
    if step == 2:
        open(out + "/here", "w").close()
        while os.path.exists(out + "/here"): time.sleep(0.05)
"""
    run = start_apart(tmp_path, setup, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
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
    with start_apart(tmp_path, setup, stderr=subprocess.DEVNULL) as run:
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
    with start_apart(tmp_path, setup) as run:
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
        fit(tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists(), "refused before anything is written"


def test_interrupted_says_how_to_go_on():
    stop = train.Interrupted(signal.SIGTERM, 7, "runs/x/checkpoints")
    assert re.search(
        r"stopped by SIGTERM at step 7, with a checkpoint in runs/x/checkpoints\. The same command", str(stop)
    )
