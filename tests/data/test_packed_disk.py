"""Packing onto a disk that is full, or has no locks."""

import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress

import pytest

from tests.data.small_folder import (
    COMPLETE,
    COUNT,
    IMAGE,
    Counted,
    assert_right,
    counted,
    die,
    endings,
    in_a_process,
    packed,
    with_append,
    with_replace,
)


@pytest.fixture
def without_locks(monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)


def test_two_processes_without_locks(pets, without_locks):
    """Each writes to files of its own, and the one that is complete first stays."""
    seen = []

    def progress(done, total):
        if not seen:
            assert in_a_process(lambda: packed(pets)) == 0
        seen.append({file.name.rpartition(".")[2] for file in (pets / ".bort").iterdir()})

    assert_right(packed(pets, progress=progress), pets)
    assert seen == [{"lock", "part", "journal", "bytes", "json"}] * 4
    assert endings(pets / ".bort") == COMPLETE


def test_another_process_is_complete_when_this_one_begins(pets, without_locks):
    def first_read(file):
        Counted.hook = None
        assert in_a_process(lambda: packed(pets)) == 0

    Counted.hook = first_read
    seen = []
    assert_right(packed(pets, progress=lambda *_: seen.append(len(list((pets / ".bort").glob("*.bytes"))))), pets)
    assert seen == [1, 1, 1, 1], "it was there all the time"


def test_what_is_left_without_locks(pets, without_locks):
    """By a process that was killed: nobody else knows, and it is removed when it is old. By one that fails: nothing."""
    assert in_a_process(lambda: packed(pets, progress=lambda *_: die())) == -signal.SIGKILL
    (left,) = (pets / ".bort").glob("*.part")
    assert re.fullmatch(r"packed-[0-9a-f]{16}\.[\w-]+-\d+\.part", left.name)
    assert_right(packed(pets), pets)
    assert left.exists()
    for file in (left, left.with_suffix(".journal")):
        os.utime(file, (0, 0))
    os.utime(pets / "val/dog/1.png", ns=(0, 1))
    packed(pets)
    assert endings(pets / ".bort") == COMPLETE
    os.utime(pets / "val/dog/1.png", ns=(0, 2))
    with pytest.raises(ZeroDivisionError):
        packed(pets, progress=lambda done, total: 1 / (6 - done))
    assert endings(pets / ".bort") == COMPLETE


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def in_the_middle(monkeypatch):
    write = os.pwrite

    def pwrite(descriptor, content, offset):
        return full() if offset == 7 * IMAGE else write(descriptor, content, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)


def at_the_bytes(monkeypatch):
    with_replace(monkeypatch, ".bytes", before=full)


def at_the_manifest(monkeypatch):
    with_replace(monkeypatch, ".json", before=full)


def at_the_journal(monkeypatch):
    with_append(monkeypatch, full)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("moment", [in_the_middle, at_the_bytes, at_the_manifest, at_the_journal])
def test_the_disk_is_full(pets, monkeypatch, moment, workers):
    """Nothing stays there, and the message says what to do."""
    words = rf"need {COUNT * IMAGE:,} bytes in .*/pets/\.bort, where [\d,]+ are free .*free some space, choose another folder"
    with monkeypatch.context() as patch:
        moment(patch)
        with pytest.raises(OSError, match=words) as caught:
            packed(pets, workers=workers)
    assert caught.value.errno == errno.ENOSPC
    assert endings(pets / ".bort") == {"lock"}
    assert_right(packed(pets, workers=workers), pets)


def test_too_little_space_is_seen_before_anything_is_decoded(pets, monkeypatch):
    with pytest.raises(ZeroDivisionError):
        packed(pets, progress=lambda done, total: 1 / (6 - done))
    counted(pets).reads()
    usage = shutil.disk_usage(pets)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=-10_000_000))
    with pytest.raises(OSError, match="are free"):
        packed(pets)
    assert counted(pets).reads() == []
    assert endings(pets / ".bort") == {"lock"}


@pytest.mark.parametrize("state", ["stale", "damaged"])
def test_useless_bytes_give_way_when_space_is_short(pets, monkeypatch, state):
    before = packed(pets).path
    if state == "stale":
        os.utime(pets / "val/dog/1.png", ns=(0, 1))
    else:
        os.truncate(before, 10)
    usage = shutil.disk_usage(pets)

    def disk_usage(place):
        return usage._replace(free=-10_000_000 if list(place.glob("*.bytes")) else 10_000_000)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    assert_right(packed(pets), pets)


def test_a_disk_that_is_really_full(pets, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False).returncode
    ):
        pytest.skip("mounting a small file system needs pets")
    try:
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
        with pytest.raises(OSError, match="No space left on device"):
            packed(pets, cache=disk)
        os.truncate(filler, 32 * 1024)
        assert_right(packed(pets, cache=disk), pets)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
