"""Files that are written whole or not at all, and their digests."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def write_atomically(file: Path, content: str | bytes) -> None:
    """Replace the file by ``content``. On any failure it stays as it was: the content goes to a scratch file first."""
    scratch = file.with_suffix(".writing")
    try:
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(scratch, file)
    except KeyboardInterrupt:
        scratch.unlink(missing_ok=True)
        raise
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise OSError(error.errno, f"cannot write {file}: {error.strerror}") from error


def sha256(file: Path) -> str:
    """The file's SHA-256 in hexadecimal, read in pieces."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
