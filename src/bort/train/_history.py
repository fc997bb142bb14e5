"""Where the records of a training's epochs go: history.jsonl always, TensorBoard if wanted."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

from bort._files import write_atomically


class History:
    """history.jsonl, a line an epoch. A run that goes on from a checkpoint removes the lines of later epochs (`keep`)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        lines = self._path.read_text().splitlines()
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                records.append(json.loads(line))
            except ValueError as error:
                if number < len(lines):
                    raise ValueError(f"{self._path}, line {number}, is damaged: {error}") from error
                break  # the last line was cut off when the process was killed
        return records

    def keep(self, count: int) -> None:
        """Remove all but the first ``count`` records."""
        records = self.read()[:count]
        if self._path.exists():
            write_atomically(self._path, "".join(json.dumps(record) + "\n" for record in records))

    def add(self, record: dict[str, Any]) -> None:
        try:
            with self._path.open("a") as stream:
                stream.write(json.dumps(record) + "\n")
                stream.flush()
                os.fsync(stream.fileno())  # a later checkpoint relies on the record being there
        except OSError as error:
            raise OSError(
                error.errno, f"cannot write {self._path}: {error.strerror}; checkpoints are intact"
            ) from error


class TensorBoard:
    """Curves for TensorBoard. If writing fails (full disk, removed folder), one warning, and training goes on without it."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("tensorboard=True needs TensorBoard: pip install tensorboard") from error
        self._writer: Any = self._try(lambda: SummaryWriter(str(folder), purge_step=step))

    def add(self, record: dict[str, Any]) -> None:
        def write() -> None:
            for name, value in record.items():
                if isinstance(value, (int, float)) and name not in ("epoch", "step"):
                    self._writer.add_scalar(name, value, record["step"])
            self._writer.flush()

        if self._writer is not None:
            self._try(write)

    def close(self) -> None:
        if self._writer is not None:
            self._try(self._writer.close)

    def _try(self, call: Any) -> Any:
        try:
            return call()
        except Exception as error:  # whatever TensorBoard raises, it must not end the training
            self._writer = None
            warnings.warn(f"TensorBoard is gone, training goes on without it: {error}", stacklevel=3)
            return None
