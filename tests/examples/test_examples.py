"""The examples run as they stand, and end where they say."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_plain_pytorch():
    command = [sys.executable, EXAMPLES / "plain_pytorch.py"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    last = next(line for line in reversed(result.stdout.splitlines()) if line.startswith("epoch"))
    assert float(last.split("0.weight ")[1].split(",")[0]) < 0.1
