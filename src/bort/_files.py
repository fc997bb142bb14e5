"""Atomic writes, and digests of files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def write_atomically(file: Path, content: str | bytes) -> None:
    """Replace the file by ``content``, by way of a scratch file beside it that is renamed when it is complete. After a
    failure the file is as it was."""
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
