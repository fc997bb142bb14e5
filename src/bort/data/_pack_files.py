"""Where the bytes of a packed folder are: the place, the names of the files in it, and the lock."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bort._files import SCRATCH
from bort.data._folder import Folder
from bort.data._published import default_root

FORMAT = 1
"""Of the bytes, the manifest and the journal: with another number everything is made anew."""
_OURS = re.compile(
    rf"packed-(?P<stamp>[0-9a-f]{{16}})(?P<own>\.[\w-]+)??\.(bytes|part|journal|json|(?P<scratch>writing|{SCRATCH}))"
)
_ABANDONED = 24 * 3600  # seconds after which a file that one process writes without a lock belongs to nobody


def stamp(folder: Folder) -> str:
    """SHA-256 over what the bytes depend on: the class that reads the images, and the path, size, time of change and label of
    every file in order."""
    kind = type(folder)
    digest = hashlib.sha256(f"{FORMAT} {kind.__module__}.{kind.__qualname__} {folder.fingerprint}\n".encode())
    for files in (folder.train_files, folder.test_files):
        digest.update(f"{len(files)}\n".encode())
        for file, label in files:
            try:
                status = os.stat(os.path.join(folder.root, file))
                facts = status.st_size, status.st_mtime_ns
            except OSError:
                facts = -1, -1  # a broken link
            digest.update(os.fsencode(file) + f"\0{facts[0]} {facts[1]} {label}\n".encode())
    return digest.hexdigest()


def places(folder: Folder, cache: Path | None) -> list[Path]:
    """Where the files may be; they are made in the first that can be written. Below a cache, which several data sets share,
    each has a folder of its own."""
    key = hashlib.sha256(os.fsencode(folder.root.resolve())).hexdigest()[:12]
    name = f"{folder.root.name}-{key}"
    if cache is not None:
        return [cache / name]
    return [folder.root / ".bort", default_root() / "packed" / name]


def writable(candidates: Sequence[Path], root: Path) -> Path:
    """The first of these folders in which files can be made; it is made itself if need be."""
    problems = []
    for place in candidates:
        try:
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                return place
        except OSError as error:
            problems.append(f"{place} ({error.strerror})")
    raise OSError(
        f"the decoded images of {root} cannot be written to {' or '.join(problems)}: make it writable, choose another folder "
        "with cache=, or train from the image files"
    )


@contextmanager
def locked(place: Path, say: Callable[[str], None]) -> Iterator[bool]:
    """Only one process at a time gets past this for a place; the others wait. False where the file system has no locks.

    An flock ends with its process, however that ends.
    """
    import fcntl

    with (place / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except BlockingIOError:
            say(f"another process is decoding images into {place}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = True
        except OSError:
            held = False
        try:
            yield held
        finally:
            if held:
                fcntl.flock(lock, fcntl.LOCK_UN)


@dataclass(frozen=True)
class Files:
    """The files of one stamp in a place. While the images are being decoded there are ``part`` and ``journal``; when they
    are complete, ``data`` and ``manifest``.

    A process without a lock writes to names that contain its ``own``, so that no other process writes to the same files.
    """

    place: Path
    stamp: str
    own: str = ""

    @property
    def data(self) -> Path:
        return self.place / f"{self._stem}.bytes"

    @property
    def manifest(self) -> Path:
        return self.place / f"{self._stem}.json"

    @property
    def own_manifest(self) -> Path:
        return self.place / f"{self._stem}{self.own}.json"

    @property
    def part(self) -> Path:
        return self.place / f"{self._stem}{self.own}.part"

    @property
    def journal(self) -> Path:
        return self.place / f"{self._stem}{self.own}.journal"

    @property
    def _stem(self) -> str:
        return f"packed-{self.stamp[:16]}"

    def alone(self) -> Files:
        """The same with names of this process's own."""
        host = re.sub(r"[^\w-]", "-", os.uname().nodename)
        return Files(self.place, self.stamp, f".{host}-{os.getpid()}")

    def remove_unfinished(self) -> None:
        for file in (self.part, self.journal):
            file.unlink(missing_ok=True)
        if not self.manifest.exists():
            self.data.unlink(missing_ok=True)

    def remove_stale(self) -> None:
        """Files of other stamps, and files that were being written by processes that are gone. Nothing is written now."""
        for file in list(self.place.iterdir()):
            match = _OURS.fullmatch(file.name)
            with suppress(OSError):  # not ours to remove, or removed by another process just now
                if match and self._is_stale(file, match):
                    file.unlink()

    def _is_stale(self, file: Path, match: re.Match[str]) -> bool:
        if match["own"]:
            return time.time() - file.stat().st_mtime > _ABANDONED
        return match["scratch"] is not None or match["stamp"] != self.stamp[:16]
