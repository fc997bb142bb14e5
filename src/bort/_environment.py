"""What every result, run and benchmark file records about where it was made."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("torch", "torchvision", "timm", "numpy", "triton")


def describe(seed: int) -> dict[str, Any]:
    """Hardware, versions, seed, commit, date."""
    return {
        "hardware": hardware(),
        "versions": versions(),
        "seed": seed,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def hardware() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cpu = next(
        (line.split(":")[1].strip() for line in _cpu_info() if line.startswith("model name")), platform.machine()
    )
    return f"{cpu}, {torch.get_num_threads()} threads"


def versions() -> dict[str, str]:
    """Of Python, bort and the packages that a training's result depends on, without importing them."""
    import bort

    installed = {"python": platform.python_version(), "bort": bort.__version__}
    for package in _PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed | {"torch": torch.__version__}


def commit() -> str:
    """Of the checkout that bort runs from, with "-dirty" if files have been changed; $BORT_COMMIT where there is no git."""
    if named := os.environ.get("BORT_COMMIT"):
        return named
    here = Path(__file__).parents[2]
    if not (here / ".git").exists():  # an installed package: a repository around it would be somebody else's
        return "unknown"
    try:
        command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _cpu_info() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.exists() else []
