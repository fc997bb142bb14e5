"""What there is to measure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bort.train import Run


@dataclass(frozen=True)
class Trained:
    run: Run
    against: Run | None
    """The other run of a pair, where the job has one."""
    data_root: Path | None
    device: str
    pictures: Path
    """The folder for what is drawn."""
