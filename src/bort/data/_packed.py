"""A folder's images decoded once and kept as bytes in one file, which is memory-mapped."""

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bort.data._folder import Folder
from bort.data._pack_files import Files, locked, places, stamp, writable
from bort.data._pack_make import Progress, Say, make, probe
from bort.data._pack_record import Damaged, check_bytes, read_manifest, write_manifest
from bort.data._pack_workers import NotPackable, SizesDiffer, file_at

# Without it Linux refuses a private mapping that is larger than the memory. Python names it from 3.13 on.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


@dataclass(frozen=True)
class Packed:
    """All images of a folder as bytes, memory-mapped from one file. Writing into the tensors changes a copy in memory, not
    the file.

    Example:
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> for place in ("train/cat", "val/cat"):
        ...     Path("pets", place).mkdir(parents=True)
        ...     Image.new("RGB", (8, 8), "white").save(f"pets/{place}/first.png")
        >>> packed = data.pack(data.load("folder:pets", root="."), workers=0)
        >>> packed.train_images.shape, packed.train_images.min()
        (torch.Size([1, 3, 8, 8]), tensor(255, dtype=torch.uint8))
    """

    path: Path
    train_images: Tensor
    """uint8 (N, 3, height, width)"""
    train_labels: Tensor
    """int64 (N,)"""
    test_images: Tensor
    test_labels: Tensor
    unreadable: dict[str, dict[int, str]]
    """For "train" and "test": the index of each image that cannot be read, and a message that names its file. Its bytes are
    zeros."""

    def held_out(self, n: int) -> Packed:
        """Every ``n``-th training image in place of the test images, as in :meth:`Folder.held_out`; copied into memory."""
        place = torch.arange(len(self.train_images))
        kept, out = place[place % n != 0], place[::n]
        unreadable: dict[str, dict[int, str]] = {"train": {}, "test": {}}
        for index, message in self.unreadable["train"].items():
            if index % n:
                unreadable["train"][index - index // n - 1] = message
            else:
                unreadable["test"][index // n] = message
        images, labels = self.train_images, self.train_labels
        return Packed(self.path, images[kept], labels[kept], images[out], labels[out], unreadable)


def pack(
    folder: Folder,
    *,
    workers: int,
    cache: Path | None = None,
    most_bytes: int | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
    chunk: int = 1024,
) -> Packed | None:
    """The images of a folder as bytes, decoded by ``workers`` processes (0: by this one) unless that was done before.

    None if they are not all of one size, or take more than ``most_bytes``. ``say`` is then called with the reason, as it is
    with a line for everything else that is worth knowing; ``progress`` with the number of images decoded so far and of all.

    The bytes are kept in ``<root>/.bort``, or if that cannot be written in ``packed`` below $BORT_DATA or ~/.cache/bort; or
    below ``cache`` if it is given. What is there is used if it was made of these files (path, size, time of change and label
    of each) and is undamaged. After a kill, or an exception out of ``progress``, the next call keeps the chunks of ``chunk``
    images that were complete.

    Example:
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> for place, side in (("train/cat", 8), ("val/cat", 9)):
        ...     Path("pets", place).mkdir(parents=True)
        ...     Image.new("RGB", (side, side)).save(f"pets/{place}/first.png")
        >>> data.pack(data.load("folder:pets", root="."), workers=0) is None  # two sizes
        True
    """
    if workers < 0 or chunk < 1:
        raise ValueError(f"workers={workers}, chunk={chunk}: they must be at least 0 and 1")
    say = say or (lambda _: None)
    now, candidates = stamp(folder), places(folder, cache)
    try:
        for place in candidates:  # without a lock: a place with complete files may be read-only
            packed = _opened(folder, Files(place, now), say)
            if packed is not None:
                return packed
        return _made(folder, now, candidates, workers, chunk, most_bytes, progress or (lambda *_: None), say)
    except NotPackable as reason:
        say(f"the images of {folder.root} cannot be kept as bytes: {reason}")
        return None


def _opened(folder: Folder, files: Files, say: Say) -> Packed | None:
    """What was packed earlier, if it is there and undamaged."""
    try:
        manifest = read_manifest(files.manifest, files.stamp)
        if manifest is None:
            return None
        if "sizes differ" in manifest:
            raise SizesDiffer(manifest["sizes differ"])
        check_bytes(files.data, manifest)
        return _mapped(folder, files, manifest["shape"], _still_unreadable(folder, manifest))
    except (Damaged, FileNotFoundError) as problem:  # not found: another process has just removed it
        say(f"{problem}: the decoded images there are not used")
        return None


def _made(
    folder: Folder,
    now: str,
    candidates: list[Path],
    workers: int,
    chunk: int,
    most_bytes: int | None,
    progress: Progress,
    say: Say,
) -> Packed:
    try:
        place = writable(candidates, folder.root)
    except OSError:
        probe(folder)  # if the images cannot be packed at all, the place does not matter
        raise
    with locked(place, say) as held:
        files = Files(place, now)
        packed = _opened(folder, files, lambda _: None)  # by the process that had the lock before
        if packed is not None:
            return packed
        files = files if held else files.alone()
        try:
            manifest = make(folder, files, workers, chunk, most_bytes, progress, say)
        except SizesDiffer as reason:
            with suppress(OSError):  # then it is found out again next time
                write_manifest(files.own_manifest, {"stamp": now, "sizes differ": str(reason)})
                os.replace(files.own_manifest, files.manifest)
                files.remove_stale()
            raise
        unreadable = {int(index): message for index, message in manifest["unreadable"].items()}
        return _mapped(folder, files, manifest["shape"], unreadable)


def _mapped(folder: Folder, files: Files, shape: list[int], unreadable: dict[int, str]) -> Packed:
    private, both = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    with files.data.open("rb") as stream:
        memory = mmap.mmap(stream.fileno(), 0, flags=private, prot=both)
    images = torch.frombuffer(memory, dtype=torch.uint8).view(shape)
    count = len(folder.train_files)
    by_split = {
        "train": {index: message for index, message in unreadable.items() if index < count},
        "test": {index - count: message for index, message in unreadable.items() if index >= count},
    }
    train_labels, test_labels = (
        torch.tensor([label for _, label in split]) for split in (folder.train_files, folder.test_files)
    )
    return Packed(files.data, images[:count], train_labels, images[count:], test_labels, by_split)


def _still_unreadable(folder: Folder, manifest: dict[str, Any]) -> dict[int, str]:
    """Images that could not be read are tried again: after a repaired permission or network the file has the same size and
    time."""
    messages = {}
    for index in map(int, manifest["unreadable"]):
        file = file_at(folder, index)
        try:
            folder.read(file)
        except ValueError as error:
            messages[index] = str(error)
        else:
            raise Damaged(f"{folder.root / file} could not be read when it was packed, and can be now")
    return messages
