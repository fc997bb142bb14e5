"""A training in a process of its own, to be killed, signalled or left alone."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.forked import Program

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, signal, sys, time
import torch
torch.set_num_threads(1)
from bort.train import Interrupted
from tests.train.small import fit
out = sys.argv[1]
{setup}
try:
    fit(out, on_step=on_step, save_steps={save_steps})
except Interrupted as stop:
    print(stop, flush=True)
    sys.exit(Interrupted.EXIT_CODE)
"""


def start(out, setup, save_steps="None"):
    """To be signalled or killed."""
    beside = out.with_name(f"{out.name}-program")
    beside.mkdir()
    file = beside / "program.py"
    file.write_text(SCRIPT.format(setup=setup, save_steps=save_steps))
    return Program(file, out, folder=beside)


def start_apart(out, setup, **options):
    """With an interpreter and streams of its own, by subprocess.Popen, where its end or what it prints to counts."""
    script = SCRIPT.format(setup=setup, save_steps="None")
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
