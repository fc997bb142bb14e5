"""The folder that a command writes: what is in it is from the last call, and manifest.json lists it."""

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

_MANIFEST = "manifest.json"


class Written:
    """Files of one call, to be entered. Those that an earlier call wrote into the folder go; files of anybody else stay, and
    are not overwritten. If the call fails, everything is as it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[str] = []
        before = folder / _MANIFEST
        try:
            self._ours = set(json.loads(before.read_text())["files"]) if before.exists() else set()
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{before} is not a manifest of bort's: choose another folder with --out") from error
        self._made_folder = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        self._scratch = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)
        if self._made_folder:
            with contextlib.suppress(OSError):
                self.folder.rmdir()  # empty: the call has failed

    def add(self, name: str, content: bytes) -> None:
        if name in self.files:
            raise ValueError(f"two images would be written as {name}: rename one of them")
        if name not in self._ours and (self.folder / name).exists():
            raise ValueError(f"{self.folder / name} is there already and not bort's: choose another folder with --out")
        write_atomically(self._scratch / name, content)
        self.files.append(name)

    def close(self, seed: int, **facts: Any) -> Path:
        """The manifest, and away with what an earlier call has left."""
        manifest = self.folder / _MANIFEST
        for name in self.files:
            os.replace(self._scratch / name, self.folder / name)
        whole = facts | {"files": self.files} | describe(seed)
        write_atomically(manifest, json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
        for name in self._ours - set(self.files):
            if Path(name).name == name:
                (self.folder / name).unlink(missing_ok=True)
        return manifest
