"""The folder that a command writes: it holds the files of the last call, and manifest.json lists them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from bort._environment import describe
from bort._files import write_atomically
from bort.subject import Subject

_MANIFEST = "manifest.json"


class OutputFolder:
    """The files of one call, used as a context manager. They replace the files that an earlier call has listed in its
    manifest; other files stay and are never overwritten. If the call fails, the folder is left as it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[str] = []
        earlier = folder / _MANIFEST
        try:
            self._earlier = set(json.loads(earlier.read_text())["files"]) if earlier.exists() else set()
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{earlier} is not a manifest of bort's: choose another folder with --out") from error
        self._is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        self._scratch = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))

    def __enter__(self) -> OutputFolder:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)
        if self._is_new:
            with contextlib.suppress(OSError):
                self.folder.rmdir()  # succeeds only if it is empty, because the call has failed

    def add(self, name: str, content: bytes) -> None:
        if name in self.files:
            raise ValueError(f"two images would be written as {name}: rename one of them")
        if name not in self._earlier and (self.folder / name).exists():
            raise ValueError(f"{self.folder / name} is there already and not bort's: choose another folder with --out")
        write_atomically(self._scratch / name, content)
        self.files.append(name)

    def close(self, subject: Subject, **facts: Any) -> Path:
        """Put the files in place, write the manifest, and remove the files of an earlier call."""
        manifest = self.folder / _MANIFEST
        for name in self.files:
            os.replace(self._scratch / name, self.folder / name)
        seed = subject.facts.get("seed", "")  # of the training
        content = facts | {"files": self.files} | describe(int(seed) if seed.isdecimal() else 0)
        write_atomically(manifest, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        for name in self._earlier - set(self.files):
            if Path(name).name == name:  # a name, not a path that leads elsewhere
                (self.folder / name).unlink(missing_ok=True)
        return manifest
