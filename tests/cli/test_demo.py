import subprocess
import sys

import pytest


@pytest.mark.slow
def test_demo_ends_with_both_networks_in_one_table():
    command = [sys.executable, "-m", "bort", "demo", "--epochs", "2"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "SGD: " in result.stdout
    header = next(line for line in result.stdout.splitlines() if line.startswith("layer"))
    assert "σ SGD" in header
    assert "ratio Bort-S" in header
    assert sum(line.startswith(("conv", "fc", "head")) for line in result.stdout.splitlines()) == 5


def test_help_is_fast_and_lists_the_commands():
    code = """
import atexit, sys
from bort.cli import main
atexit.register(lambda: print("torch" in sys.modules))
sys.argv = ["bort", "--help"]
main()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "demo" in result.stdout
    assert result.stdout.strip().endswith("False")
