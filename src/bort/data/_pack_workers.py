"""Decoding a folder's images into one file of bytes, by several processes."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from bort.data._folder import Folder

_PATIENCE = 10.0  # seconds for a worker to end by itself, which takes it the time of one image


class NotPackable(Exception):
    """Why the images cannot be kept as one array."""


class SizesDiffer(NotPackable):
    """They are not all of one size."""


class Chunk(NamedTuple):
    """What is known of a chunk whose bytes are written."""

    number: int
    crc: int
    """CRC-32 of its bytes."""
    unreadable: dict[int, str]
    """Index of the image in the file → the message that names it."""


@dataclass(frozen=True)
class Job:
    """The images of both splits, first train and then test, as bytes (N, 3, height, width) in the file ``part``."""

    folder: Folder
    part: Path
    size: tuple[int, int]
    """Width and height."""
    chunk: int
    """How many images a chunk has; the last one may have fewer."""

    @property
    def count(self) -> int:
        return len(self.folder.train_files) + len(self.folder.test_files)

    @property
    def image_bytes(self) -> int:
        return 3 * self.size[0] * self.size[1]

    @property
    def total_bytes(self) -> int:
        return self.count * self.image_bytes

    @property
    def chunks(self) -> int:
        return math.ceil(self.count / self.chunk)

    def indices(self, number: int) -> range:
        """Of the images of a chunk."""
        return range(number * self.chunk, min((number + 1) * self.chunk, self.count))


def file_at(folder: Folder, index: int) -> str:
    """Path below root of an image, counted over both splits."""
    train, test = folder.train_files, folder.test_files
    return train[index][0] if index < len(train) else test[index - len(train)][0]


def sizes_differ(file: str, size: tuple[int, int], others: tuple[int, int]) -> SizesDiffer:
    return SizesDiffer(f"{file} is {size[0]}×{size[1]} pixels, others are {others[0]}×{others[1]}")


def decode(job: Job, number: int, check: Callable[[], None] = lambda: None) -> Chunk:
    """Write the images of a chunk to their place in the part file, until they are on the disk; zeros for an image that cannot
    be read. ``check`` is called before each image, and ends the work by raising."""
    crc, unreadable = 0, {}
    with job.part.open("r+b", buffering=0) as part:
        for index in job.indices(number):
            check()
            file = file_at(job.folder, index)
            try:
                image = job.folder.read(file)
            except ValueError as error:
                unreadable[index] = str(error)
                content = bytes(job.image_bytes)
            else:
                if image.size != job.size:
                    raise sizes_differ(file, image.size, job.size)
                content = b"".join(band.tobytes() for band in image.split())  # (H, W, 3) to (3, H, W)
            _write(part.fileno(), content, index * job.image_bytes)
            crc = zlib.crc32(content, crc)
        os.fsync(part.fileno())
    return Chunk(number, crc, unreadable)


def decoded(job: Job, numbers: Sequence[int], workers: int) -> Generator[list[Chunk]]:
    """Decode these chunks, and yield them as they are finished. ``workers`` processes each do one after the other, or this
    one does if they are 0. When the iterator is closed, the workers end.

    They are started as torch's DataLoader starts its own, by multiprocessing's default method. Each has a pipe to this
    process. A pipe that is closed while its worker is busy, since this process has closed it or has been killed, ends the
    worker before its next image.
    """
    if not workers:
        for number in numbers:
            yield [decode(job, number)]
        return
    left = iter(numbers)
    processes: dict[Any, Any] = {}  # by connection
    try:
        for number in islice(left, workers):
            connection, process = _start(job)
            processes[connection] = process
            _send(connection, process, number)
        busy = set(processes)
        while busy:
            finished = []
            for connection in wait(list(busy)):
                finished.append(_receive(connection, processes[connection]))
                following = next(left, None)
                if following is None:
                    busy.remove(connection)
                else:
                    _send(connection, processes[connection], following)
            yield finished
    finally:
        for connection in processes:
            connection.close()
        for process in processes.values():
            process.join(_PATIENCE)
            process.kill()
            process.join()


def _write(descriptor: int, content: bytes, offset: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def _start(job: Job) -> tuple[Any, Any]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_work, args=(theirs, ours, job), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _send(connection: Any, process: Any, number: int) -> None:
    try:
        connection.send(number)
    except OSError:
        raise _died(process) from None


def _receive(connection: Any, process: Any) -> Chunk:
    try:
        answer = connection.recv()
    except (EOFError, OSError):
        raise _died(process) from None
    if isinstance(answer, Exception):
        raise answer
    chunk: Chunk = answer
    return chunk


def _died(process: Any) -> RuntimeError:
    process.join(_PATIENCE)
    return RuntimeError(
        f"a process that decodes images has ended with exit code {process.exitcode} (−9: killed, mostly for memory). What "
        "was decoded is kept: start again to go on from there, with fewer workers if memory is short"
    )


def _work(theirs: Any, ours: Any, job: Job) -> None:
    """A worker: chunk numbers come in, chunks or errors go out."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # Ctrl-C goes to every process of the terminal; the parent decides
    ours.close()  # a copy of the parent's end, which would keep the pipe open when the parent has gone

    def check() -> None:
        if theirs.poll():  # nothing is sent to a busy worker: the pipe is closed
            raise EOFError

    with suppress(EOFError, ConnectionError):
        while True:
            theirs.send(_answer(job, theirs.recv(), check))


def _answer(job: Job, number: int, check: Callable[[], None]) -> Chunk | Exception:
    try:
        return decode(job, number, check)
    except EOFError:
        raise
    except (NotPackable, OSError) as error:
        return error
    except Exception as error:  # not every exception can be sent through a pipe
        return RuntimeError(f"{type(error).__name__}: {error}")
