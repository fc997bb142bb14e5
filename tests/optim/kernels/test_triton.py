"""The kernels in Triton's interpreter: no GPU needed. On a GPU: test_cuda."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_kernels_in_the_interpreter():
    """In a process of its own: Triton looks at the variable when it is imported."""
    pytest.importorskip("triton")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "ignore", Path(__file__).with_name("interpreted.py")],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-4000:]
