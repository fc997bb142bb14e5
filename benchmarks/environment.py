"""What every benchmark file records about where it was made."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import torch


def describe(seed: int) -> dict[str, Any]:
    return {
        "hardware": hardware(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__} | _triton(),
        "seed": seed,
        "commit": os.environ.get("BORT_COMMIT") or _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def hardware() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cpu = next(
        (line.split(":")[1].strip() for line in _cpu_info() if line.startswith("model name")), platform.machine()
    )
    return f"{cpu}, {torch.get_num_threads()} threads"


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _cpu_info() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.exists() else []


def _triton() -> dict[str, str]:
    try:
        import triton
    except ImportError:
        return {}
    return {"triton": triton.__version__}


def _commit() -> str:
    try:
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
