"""Training on several processes: the same as on one, interrupted or not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bort import train
from tests.forked import Ranks
from tests.train.small import LENET, fit, result

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys, time
import torch
torch.set_num_threads(1)
from bort.train import Interrupted
from tests.train.small import LENET, fit

out, parallel, wait = sys.argv[1:]
def on_step(step):
    if wait == "wait" and step == 7:
        open(f"{out}-{os.environ['RANK']}", "w").close()
        while not os.path.exists(f"{out}-go"): time.sleep(0.05)
try:
    fit(out, LENET, parallel=parallel, on_step=on_step, save_steps=8)
except Interrupted as stop:
    print(stop, flush=True)
    sys.exit(Interrupted.EXIT_CODE)
"""


def torchrun(script, count, out, parallel):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    }
    return subprocess.Popen(
        [*command, str(script), str(out), parallel, "wait"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def output_of(run):
    """All that it printed. If it hangs, it and its processes are killed."""
    try:
        return run.communicate(timeout=100)[0]
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        raise


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run of one process."""
    return fit(tmp_path_factory.mktemp("alone"), LENET)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp2"])
def test_as_on_one_process(script, alone, tmp_path, parallel):
    """150 images in batches of 32: the last one has 22, and 3 processes share it unevenly."""
    ranks = Ranks(3, script, tmp_path / "run", parallel, "no", folder=tmp_path)
    assert ranks.wait() == [0, 0, 0], ranks.errors[-2000:]
    assert ranks.output.count("epoch 3/3") == 1, "one process speaks"
    (weights, history), (expected, expected_history) = result(train.load(tmp_path / "run")), result(alone)
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-5)
    for record, wanted in zip(history, expected_history, strict=True):
        assert record["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
        assert record["accuracy"] == wanted["accuracy"]
        assert record["residual"] == pytest.approx(wanted["residual"], rel=1e-4)


def wait_for_all(folder):
    """Until both ranks are in a step."""
    for _ in range(600):
        if all((folder / f"run-{rank}").exists() for rank in range(2)):
            return
        time.sleep(0.1)
    raise TimeoutError("they do not train")


def test_a_signal_stops_all_and_all_go_on(script, alone, tmp_path):
    """torchrun passes SIGTERM on; the processes agree on the step, and the next start is exact."""
    with torchrun(script, 2, tmp_path / "run", "ddp") as run:
        wait_for_all(tmp_path)
        run.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        (tmp_path / "run-go").touch()
        output = output_of(run)
    assert run.returncode != 0
    assert "with a checkpoint in" in output
    assert_all_go_on(script, alone, tmp_path, "ddp")


def test_a_signal_to_one_rank_stops_all_and_all_go_on(script, alone, tmp_path):
    ranks = Ranks(2, script, tmp_path / "run", "fsdp2", "wait", folder=tmp_path)
    wait_for_all(tmp_path)
    ranks.programs[1].send_signal(signal.SIGTERM)
    (tmp_path / "run-go").touch()
    assert ranks.wait() == [train.Interrupted.EXIT_CODE] * 2, ranks.errors[-2000:]
    assert "with a checkpoint in" in ranks.output
    assert_all_go_on(script, alone, tmp_path, "fsdp2")


def assert_all_go_on(script, alone, folder, parallel):
    (checkpoint,) = (folder / "run" / "checkpoints").iterdir()
    ranks = Ranks(2, script, folder / "run", parallel, "no", folder=folder)
    assert ranks.wait() == [0, 0], ranks.errors[-2000:]
    assert f"going on after step {int(checkpoint.name[5:])} of 15" in ranks.output
    (weights, history), (expected, expected_history) = result(train.load(folder / "run")), result(alone)
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-5)
    assert [r["loss"] for r in history] == pytest.approx([r["loss"] for r in expected_history], rel=1e-5)


def test_another_number_of_processes_is_refused(script, tmp_path):
    fit(tmp_path / "run", LENET)
    ranks = Ranks(2, script, tmp_path / "run", "ddp", "no", folder=tmp_path)
    assert 0 not in ranks.wait()
    assert "was started differently: processes: 1 → 2" in ranks.errors
