"""What is known of the bytes of a packed folder: a manifest of complete ones, a journal of those that are being written."""

from __future__ import annotations

import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bort._files import write_atomically
from bort.data._dataset import spread
from bort.data._pack_workers import Chunk, Job

_ALL_BELOW = 8 * 10**9  # bytes: of larger files some chunks are checked
_SOME = 16
_BLOCK = 2**22


class Damaged(Exception):
    """What is wrong with the files of a complete pack."""


def write_manifest(file: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, sort_keys=True)
    record = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "content": json.loads(text)}
    write_atomically(file, json.dumps(record) + "\n")


def read_manifest(file: Path, stamp: str) -> dict[str, Any] | None:
    """None if there is none. With its SHA-256 and its stamp right, the rest is as it was written."""
    try:
        record = json.loads(file.read_text())
        content: dict[str, Any] = record["content"]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        if digest != record["sha256"]:
            raise Damaged(f"{file} is damaged: its SHA-256 is not the one in it")
        found = content["stamp"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Damaged(f"{file} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{file} is damaged: {error!r}") from error
    if found != stamp:
        raise Damaged(f"{file} is of other images")
    return content


def check_bytes(file: Path, manifest: dict[str, Any]) -> None:
    """Compare the file's size and its chunks with the manifest."""
    count, *shape = manifest["shape"]
    image_bytes, chunk, crcs = math.prod(shape), manifest["chunk"], manifest["crc"]
    try:
        with file.open("rb", buffering=0) as stream:
            size, expected = os.fstat(stream.fileno()).st_size, count * image_bytes
            if size != expected:
                raise Damaged(f"{file} has {size:,} bytes, not {expected:,}")
            for number in chunks_to_check(len(crcs), size):
                length = (min((number + 1) * chunk, count) - number * chunk) * image_bytes
                if crc_of(stream.fileno(), number * chunk * image_bytes, length) != crcs[number]:
                    raise Damaged(f"{file} is damaged: chunk {number} of {len(crcs)} has another CRC-32")
    except OSError as error:
        raise Damaged(f"{file} cannot be read ({error.strerror})") from error


def chunks_to_check(count: int, size: int) -> list[int]:
    """All chunks of a file of ``size`` bytes; of a large one the first, the last and some between them."""
    return list(range(count)) if size < _ALL_BELOW else sorted({*spread(count, _SOME + 1), count - 1})


def crc_of(descriptor: int, offset: int, length: int) -> int:
    """CRC-32 of a piece of a file. A file that ends before the piece does has another one."""
    crc = 0
    while length:
        block = os.pread(descriptor, min(length, _BLOCK), offset)
        if not block:
            return -1
        crc = zlib.crc32(block, crc)
        offset, length = offset + len(block), length - len(block)
    return crc


class Journal:
    """One JSON line for each chunk that is on the disk, after a line that says of what. The last line may be torn when the
    process is killed; it is then taken as missing."""

    def __init__(self, file: Path, job: Job, stamp: str, chunks: Iterable[Chunk]) -> None:
        """Begin it with the chunks that are there already."""
        head = {"stamp": stamp, "chunk": job.chunk, "size": job.size}
        write_atomically(file, "".join(_line(entry) for entry in (head, *map(_entry, chunks))))
        self._stream = file.open("a")

    def append(self, chunks: Iterable[Chunk]) -> None:
        self._stream.write("".join(_line(_entry(chunk)) for chunk in chunks))
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        with suppress(OSError):  # a full disk: `append` has said so
            self._stream.close()


def read_journal(file: Path, stamp: str, chunk: int) -> tuple[tuple[int, int], list[Chunk]] | None:
    """Size of the images and the chunks that were written; None if there is no journal for this stamp and chunk length."""
    try:
        head, *lines = file.read_text().splitlines(keepends=True)
        facts = json.loads(head)
        if (facts["stamp"], facts["chunk"]) != (stamp, chunk):
            return None
        width, height = facts["size"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    chunks = []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line) if line.endswith("\n") else {}
            unreadable = {int(index): message for index, message in entry["unreadable"].items()}
            chunks.append(Chunk(entry["chunk"], entry["crc"], unreadable))
    return (width, height), chunks


def intact(job: Job, chunks: Iterable[Chunk]) -> dict[int, Chunk]:
    """Those of the chunks whose bytes are in the part file, by number."""
    found = {}
    with suppress(OSError), job.part.open("rb", buffering=0) as part:
        for chunk in chunks:
            indices = job.indices(chunk.number)
            length = len(indices) * job.image_bytes
            if length and crc_of(part.fileno(), indices.start * job.image_bytes, length) == chunk.crc:
                found[chunk.number] = chunk
    return found


def _entry(chunk: Chunk) -> dict[str, Any]:
    return {"chunk": chunk.number, "crc": chunk.crc, "unreadable": chunk.unreadable}


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry) + "\n"
