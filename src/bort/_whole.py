"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(file: Path, content: str | bytes) -> None:
    """The whole content, or the file as it was."""
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
