"""The examples run as they stand, and end where they say."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import Program, Ranks

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_plain_pytorch(tmp_path):
    program = Program(EXAMPLES / "plain_pytorch.py", folder=tmp_path)
    assert program.wait() == 0, program.errors.read_text()
    last = next(line for line in reversed(program.output.read_text().splitlines()) if line.startswith("epoch"))
    assert float(last.split("0.weight ")[1].split(",")[0]) < 0.1


def assert_trained(output):
    lines = [line for line in output.splitlines() if line.startswith("epoch")]
    assert len(lines) == 5, "one rank speaks"
    assert float(lines[-1].split("0.weight ")[1].split(",")[0]) < 0.3


ENDED = """
import os, runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
threads = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
assert not any("gloo" in name for name in threads), threads
"""


@pytest.mark.slow
def test_by_torchrun(tmp_path):
    """As the example says. At its end no thread of gloo is left, which could abort Python's end."""
    (tmp_path / "ended.py").write_text(ENDED)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    result = subprocess.run(
        [*torchrun, tmp_path / "ended.py", EXAMPLES / "ddp.py"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert_trained(result.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("example", "count"), [("ddp", 4), ("fsdp2", 2), ("fsdp2", 4)])
def test_on_several_ranks(tmp_path, example, count):
    checkpoint = [tmp_path / "checkpoint"] if example == "fsdp2" else []
    ranks = Ranks(count, EXAMPLES / f"{example}.py", *checkpoint, folder=tmp_path)
    assert ranks.wait() == [0] * count, ranks.errors[-2000:]
    assert_trained(ranks.output)
    assert all((path / ".metadata").exists() for path in checkpoint)


BROKEN = """
import os, signal, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
import bort

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(16, 16)
model = nn.parallel.DistributedDataParallel(model) if sys.argv[1] == "ddp" else fully_shard(model)
optimizer = bort.BortS(model.parameters(), lr=0.1, shard=sys.argv[1] == "ddp")
for step in range(100):
    model(torch.randn(4, 16)).sum().backward()
    if step == 5 and dist.get_rank() == 1:
        if sys.argv[2] == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("rank 1 has had enough")
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["dies", "raises"])
@pytest.mark.parametrize("layout", ["ddp", "fsdp2"])
def test_a_rank_that_fails_ends_all(tmp_path, layout, how):
    """No other waits for it: gloo tells them, and so they end also without torchrun."""
    script = tmp_path / "broken.py"
    script.write_text(BROKEN)
    ranks = Ranks(2, script, layout, how, folder=tmp_path)
    first, second = ranks.wait(seconds=60)
    assert first not in (0, None)
    assert second == (-signal.SIGKILL if how == "dies" else 1)
    assert ("rank 1 has had enough" in ranks.errors) == (how == "raises")
