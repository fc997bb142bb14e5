"""The examples run as they stand, and end where they say."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_plain_pytorch():
    command = [sys.executable, EXAMPLES / "plain_pytorch.py"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    last = next(line for line in reversed(result.stdout.splitlines()) if line.startswith("epoch"))
    assert float(last.split("0.weight ")[1].split(",")[0]) < 0.1


def torchrun(ranks, *command, seconds=120):
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(ranks),
            *map(str, command),
        ],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )


@pytest.mark.slow
@pytest.mark.xdist_group("ranks")
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("example", ["ddp", "fsdp2"])
def test_on_several_ranks(tmp_path, example, ranks):
    folder = [tmp_path / "checkpoint"] if example == "fsdp2" else []
    result = torchrun(ranks, EXAMPLES / f"{example}.py", *folder)
    assert result.returncode == 0, result.stderr[-2000:]
    lines = [line for line in result.stdout.splitlines() if line.startswith("epoch")]
    assert len(lines) == 5, "one rank speaks"
    assert float(lines[-1].split("0.weight ")[1].split(",")[0]) < 0.3
    assert all((path / ".metadata").exists() for path in folder)


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
@pytest.mark.xdist_group("ranks")
@pytest.mark.parametrize("how", ["dies", "raises"])
@pytest.mark.parametrize("layout", ["ddp", "fsdp2"])
def test_a_rank_that_fails_ends_all(tmp_path, layout, how):
    script = tmp_path / "broken.py"
    script.write_text(BROKEN)
    start = time.monotonic()
    result = torchrun(2, script, layout, how)
    assert time.monotonic() - start < 60
    assert result.returncode != 0
    assert ("Signal 9 (SIGKILL)" if how == "dies" else "rank 1 has had enough") in result.stderr
