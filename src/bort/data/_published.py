"""Published files in a local folder: checked if they are there, downloaded if not; an incomplete file is never used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bort._files import sha256


@dataclass(frozen=True)
class Published:
    """A file as its makers publish it."""

    name: str
    url: str
    sha256: str


def default_root() -> Path:
    """Where data sets live: $BORT_DATA, or ~/.cache/bort.

    Example:
        >>> data.default_root().is_absolute()
        True
    """
    return Path(os.environ.get("BORT_DATA") or Path.home() / ".cache" / "bort")


def check(file: Path, expected: str) -> None:
    """Refuse a file that is not the published one."""
    digest = sha256(file)
    if digest != expected:
        raise ValueError(
            f"{file} is not the published file: its SHA-256 is {digest}, it should be {expected}. It may be truncated, "
            "damaged or another file under this name. Remove it to have it downloaded again, or put the right one there."
        )


def obtain(file: Published, folder: Path) -> Path:
    """The file in the folder, checked; downloaded if it is not there."""
    path = folder / file.name
    if path.exists():
        check(path, file.sha256)
        return path
    try:
        import pooch
    except ImportError:
        raise ImportError(f'{_missing(file, folder)} To download it: pip install "bort[vision]"') from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pooch.get_logger().disabled = True
        pooch.retrieve(file.url, f"sha256:{file.sha256}", file.name, folder, downloader=_download)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(f"{_missing(file, folder)} The download failed: {error}") from error
    return path


def _missing(file: Published, folder: Path) -> str:
    return (
        f"{file.name} is not in {folder}. Get it from {file.url} (SHA-256 {file.sha256}) and put it into that folder, or "
        "point $BORT_DATA or root= to where it is."
    )


def _download(url: str, output: str, pooch: Any) -> None:
    """pooch's downloader: writes a .part file, which the next attempt continues if the connection breaks. pooch checks the
    hash of the complete file."""
    import requests
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    name = url.rpartition("/")[2]
    part = Path(output).parent / f"{name}.part"
    have = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    with requests.get(url, headers=headers, stream=True, timeout=30) as response:
        if response.status_code == 416:  # range not satisfiable: the part file is complete
            os.replace(part, output)
            return
        response.raise_for_status()
        continues = response.status_code == 206  # otherwise the server sends the file from its beginning
        have = have if continues else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, transient=True) as progress, part.open("ab" if continues else "wb") as stream:
            task = progress.add_task("", total=total, completed=have)
            for block in response.iter_content(2**16):  # at most one block is lost when the connection breaks
                stream.write(block)
                progress.advance(task, len(block))
        if total is not None and part.stat().st_size < total:
            raise OSError(
                f"the connection ended after {part.stat().st_size} of {total} bytes; run again to go on from there"
            )
    os.replace(part, output)
