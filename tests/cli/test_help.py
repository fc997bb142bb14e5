"""`bort --help`"""

import subprocess
import sys


def test_it_is_fast_and_lists_the_commands():
    code = """
import atexit, sys
from bort.cli import main
atexit.register(lambda: print("torch" in sys.modules))
sys.argv = ["bort", "--help"]
main()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for command in ("audit", "demo", "evaluate", "explain", "figures", "recipes", "report", "reproduce", "serve"):
        assert command in result.stdout
    assert result.stdout.strip().endswith("False")
