"""SIGTERM and SIGINT: a checkpoint and an exit code of their own. A second one ends the process at once."""

import signal
import time

import pytest

from tests.train.processes import start, wait_for
from tests.train.small import assert_same, fit


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_from_outside(whole, tmp_path, how):
    """In a step: a checkpoint of that step, and an exit code of its own."""
    setup = """
def on_step(step):
    if step == 7:
        open(out + "/here", "w").close()
        [time.sleep(0.1) for _ in range(20)]
"""
    run = start(tmp_path, setup)
    wait_for(tmp_path / "here")
    run.send_signal(how)
    assert run.wait() == 75, run.errors.read_text()
    assert f"stopped by {how.name} at step 7, with a checkpoint in" in run.output.read_text()
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
    assert run.status is None, "it waits for the step to end"
    run.send_signal(signal.SIGTERM)
    assert run.wait(seconds=10) == 128 + signal.SIGTERM
    assert not (tmp_path / "checkpoints").exists()
