"""Where and how a training runs. None of it is part of the recipe: it changes how long a run takes, not what it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Runtime:
    device: str = "auto"
    """"cpu", "cuda", …; "auto": a GPU if there is one."""
    data_root: Path | None = None
    """Where the data sets are; default: $BORT_DATA, or ~/.cache/bort."""
    workers: int = 2
    """Processes that read and augment the images of a folder; 0: none."""
    parallel: Literal["ddp", "fsdp2"] = "ddp"
    """With several processes (torchrun): whole weights on each, or sharded ones."""
    compile: bool = False
    """torch.compile. It pays for networks of timm on a GPU in trainings of many minutes."""
    graphs: bool = True
    """Capture the step in a CUDA graph where that can be done: images in memory, one GPU, SGD or Bort-S, constant rate."""
    save_seconds: float = 300.0
    """A checkpoint after this long at the latest; one at the end and one at a signal there are anyway."""
    save_steps: int | None = None
    """A checkpoint after each so many steps, too."""
    keep: int = 2
    """How many checkpoints stay."""
    tensorboard: bool = False
    """Curves for TensorBoard in the run's folder, beside history.jsonl."""

    def __post_init__(self) -> None:
        if self.parallel not in ("ddp", "fsdp2"):
            raise ValueError(f"parallel={self.parallel!r}: choose 'ddp' or 'fsdp2'")
        for name in ("workers", "save_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be 0 or more")
        for name in ("keep", "save_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: must be 1 or more")
