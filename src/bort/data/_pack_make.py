"""Making the packed bytes of a folder: from nothing, or from where a process that was killed has left off."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from bort.data._dataset import spread
from bort.data._folder import Folder
from bort.data._pack_files import Files, stamp
from bort.data._pack_record import Journal, intact, read_journal, write_manifest
from bort.data._pack_workers import Chunk, Job, NotPackable, SizesDiffer, decoded, sizes_differ

_PROBED = 128  # images of each split that are read first

Say = Callable[[str], None]
Progress = Callable[[int, int], None]


def make(
    folder: Folder, files: Files, workers: int, chunk: int, most_bytes: int | None, progress: Progress, say: Say
) -> dict[str, Any]:
    """Decode the images into ``files`` and return the manifest. A NotPackable says why that is not possible."""
    job, done = _begin(folder, files, chunk)
    if most_bytes is not None and job.total_bytes > most_bytes:
        raise NotPackable(f"they would take {job.total_bytes / 1e9:.1f} GB, more than {most_bytes / 1e9:.1f}")
    if done:
        say(f"{len(done)} of {job.chunks} chunks have been decoded by an earlier start: going on after them")
    with _cleaned_up(files, job):
        _reserve(files, job)
        with closing(Journal(files.journal, job, files.stamp, done.values())) as journal:
            _decode_missing(job, done, workers, journal, progress)
        if stamp(folder) != files.stamp:
            files.remove_unfinished()
            raise RuntimeError(
                f"images below {folder.root} were changed while they were decoded: start again when nothing writes there"
            )
        # Every chunk is on the disk, since who decodes one waits for that. The manifest comes last: without it the rest is
        # not taken for complete.
        os.replace(files.part, files.data)
        manifest = _manifest(job, files, [done[number] for number in range(job.chunks)])
        write_manifest(files.own_manifest, manifest)
        os.replace(files.own_manifest, files.manifest)
        files.journal.unlink()
    files.remove_stale()
    return manifest


def probe(folder: Folder) -> tuple[int, int]:
    """Width and height of some images of both splits. Where sizes differ, the first two images mostly show it."""
    size, problem = None, ""
    for files in (folder.train_files, folder.test_files):
        for position in spread(len(files), _PROBED):
            file = files[position][0]
            try:
                found = folder.read(file).size
            except ValueError as error:
                problem = problem or str(error)
                continue
            size = size or found
            if found != size:
                raise sizes_differ(file, found, size)
    if size is None:
        raise NotPackable(f"none of those looked at can be read, first: {problem}")
    return size


def _begin(folder: Folder, files: Files, chunk: int) -> tuple[Job, dict[int, Chunk]]:
    """What is to be decoded, and the chunks of it that are there already."""
    if files.journal.exists() and not files.part.exists():
        with suppress(FileNotFoundError):
            os.replace(files.data, files.part)  # killed after all was decoded, before the manifest was written
    size, chunks = read_journal(files.journal, files.stamp, chunk) or (probe(folder), [])
    job = Job(folder, files.part, size, chunk)
    return job, intact(job, chunks)


def _reserve(files: Files, job: Job) -> None:
    """Make the part file if need be, where there is space for it."""
    if not files.own:  # under the lock: what is there is damaged
        files.manifest.unlink(missing_ok=True)
        files.data.unlink(missing_ok=True)
    files.part.touch()
    os.truncate(files.part, job.total_bytes)
    missing = job.total_bytes - 512 * files.part.stat().st_blocks
    if missing > shutil.disk_usage(files.place).free:
        files.remove_stale()
    if missing > shutil.disk_usage(files.place).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _decode_missing(job: Job, done: dict[int, Chunk], workers: int, journal: Journal, progress: Progress) -> None:
    """Add the chunks that are not in ``done`` to the part file, the journal and ``done``."""
    images = sum(len(job.indices(number)) for number in done)
    missing = [number for number in range(job.chunks) if number not in done]
    with closing(decoded(job, missing, workers)) as batches:
        for batch in batches:
            journal.append(batch)
            for chunk in batch:
                done[chunk.number] = chunk
                images += len(job.indices(chunk.number))
                progress(images, job.count)


def _manifest(job: Job, files: Files, chunks: list[Chunk]) -> dict[str, Any]:
    width, height = job.size
    return {
        "stamp": files.stamp,
        "shape": [job.count, 3, height, width],
        "train": len(job.folder.train_files),
        "test": len(job.folder.test_files),
        "chunk": job.chunk,
        "crc": [chunk.crc for chunk in chunks],
        "unreadable": {str(index): message for chunk in chunks for index, message in chunk.unreadable.items()},
    }


@contextmanager
def _cleaned_up(files: Files, job: Job) -> Iterator[None]:
    """After a failure what was decoded stays for the next start, unless it is of no use or the disk is full."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or files.own:
            files.remove_unfinished()
        if not full:
            raise
        free = shutil.disk_usage(files.place).free
        raise OSError(
            error.errno,
            f"the decoded images of {job.folder.root} need {job.total_bytes:,} bytes in {files.place}, where {free:,} are "
            f"free ({error.strerror}): free some space, choose another folder with cache=, or train from the image files",
        ) from error
    except BaseException as error:
        if files.own or isinstance(error, SizesDiffer):
            files.remove_unfinished()
        raise
