"""Where and how a training runs: what changes the time that it takes, and not its result. That is the recipe's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Runtime:
    """What changes the time that a training takes, and not its result.

    Example:
        >>> train.Runtime(device="cpu", save_seconds=60).keep
        2
    """

    device: str = "auto"
    """"cpu", "cuda", …; "auto": a GPU if there is one."""
    data_root: Path | None = None
    """Where the data sets are; default: $BORT_DATA, or ~/.cache/bort."""
    workers: int = 2
    """Processes that decode the images of a folder; 0: the training's own process does it."""
    images: Literal["auto", "device", "host", "files"] = "auto"
    """Where the images of a folder are kept. If all have one size, they are decoded once into a file of bytes, which is put
    on the device, or mapped into the host's memory; otherwise, and if they are too many, they are decoded whenever they are
    used. "auto" chooses by size."""
    parallel: Literal["ddp", "fsdp2"] = "ddp"
    """With several processes (torchrun): whole weights on each, or sharded ones."""
    compile: bool = False
    """Use torch.compile. It saves time for networks of timm on a GPU, in trainings of many minutes."""
    graphs: bool = True
    """Capture the step in a CUDA graph, on GPUs: one launch instead of hundreds. Not with fsdp2."""
    save_seconds: float = 300.0
    """Save a checkpoint after this long at the latest; one is always saved at the end, and at a signal."""
    save_steps: int | None = None
    """Save a checkpoint at each save_steps-th step as well; None: do not."""
    keep: int = 2
    """How many checkpoints are kept, the newest ones."""
    tensorboard: bool = False
    """Curves for TensorBoard in the run's folder, beside history.jsonl."""

    def __post_init__(self) -> None:
        if self.parallel not in ("ddp", "fsdp2"):
            raise ValueError(f"parallel={self.parallel!r}: choose 'ddp' or 'fsdp2'")
        if self.images not in ("auto", "device", "host", "files"):
            raise ValueError(f"images={self.images!r}: choose 'auto', 'device', 'host' or 'files'")
        for name in ("workers", "save_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be 0 or more")
        for name in ("keep", "save_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: must be 1 or more")
