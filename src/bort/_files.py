"""Atomic writes, and digests of files."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from pathlib import Path

SCRATCH = r"\d+-\d+\.writing"
"""A regular expression for the end of a scratch file's name: process, thread, and that it is being written."""
_STEM_BYTES = 200
"""Of the file's own name in that of its scratch file, which may have 255 with its end."""


def write_atomically(file: Path, content: str | bytes) -> None:
    """Replace the file by ``content``, by way of a scratch file beside it that is renamed when it is complete. After a
    failure the file is as it was. Of several writers the last one wins: each has a scratch file of its own."""
    stem = os.fsencode(file.stem)[:_STEM_BYTES].decode(errors="ignore")  # no half of a character
    scratch = file.with_name(f"{stem}.{os.getpid()}-{threading.get_ident()}.writing")
    try:
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(scratch, file)
    except BaseException as error:
        scratch.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, f"cannot write {file}: {error.strerror}") from error
        raise


def is_scratch(name: str) -> bool:
    """Whether a file of this name is what a process that was killed has left of a write."""
    return name == "recipe.writing" or re.search(rf"\.{SCRATCH}$", name) is not None  # the first is of version 0.1.0


def sha256(file: Path) -> str:
    """The file's SHA-256 in hexadecimal, read in pieces."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
