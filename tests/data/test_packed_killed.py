"""Packing that is killed, stopped or done by two processes at once."""

import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from bort.data import _pack_record
from tests.data.small_folder import (
    CHUNK,
    COMPLETE,
    COUNT,
    IMAGE,
    Counted,
    assert_right,
    counted,
    die,
    endings,
    in_a_process,
    is_running,
    packed,
    wait_for,
    with_append,
    with_replace,
)


def in_the_first_chunk(monkeypatch):
    seen = Counter()

    def hook(file):
        seen[file] += 1
        if seen[file] == 2 and file == "train/cat/1.png":  # the first time it is read for its size
            die()

    monkeypatch.setattr(Counted, "hook", hook)


def before_a_line_of_the_journal(monkeypatch):
    with_append(monkeypatch, lambda journal, batch: die())


def in_a_line_of_the_journal(monkeypatch):
    def half(journal, batch):
        line = _pack_record._line(_pack_record._entry(batch[0]))
        journal._stream.write(line[:-1])  # valid JSON, but not known to be complete
        journal._stream.flush()
        die()

    with_append(monkeypatch, half)


def before_the_bytes_are_complete(monkeypatch):
    with_replace(monkeypatch, ".bytes", before=die)


def after_the_bytes_are_complete(monkeypatch):
    with_replace(monkeypatch, ".bytes", after=die)


def before_the_manifest(monkeypatch):
    with_replace(monkeypatch, ".json", before=die)


def after_the_manifest(monkeypatch):
    with_replace(monkeypatch, ".json", after=die)


@pytest.mark.parametrize(
    ("moment", "decoded"),
    [
        (in_the_first_chunk, COUNT),
        (before_a_line_of_the_journal, COUNT - CHUNK),
        (in_a_line_of_the_journal, COUNT - CHUNK),
        (before_the_bytes_are_complete, 0),
        (after_the_bytes_are_complete, 0),
        (before_the_manifest, 0),
        (after_the_manifest, 0),
    ],
)
def test_killed(pets, monkeypatch, moment, decoded):
    """The next one reads only what is not in complete chunks, and makes the same bytes."""
    with monkeypatch.context() as patch:
        moment(patch)
        assert in_a_process(lambda: packed(pets)) == -signal.SIGKILL
    counted(pets).reads()
    result = packed(pets)
    assert len(counted(pets).reads()) == decoded
    assert_right(result, pets)
    assert endings(pets / ".bort") - {"journal"} == COMPLETE


def test_killed_again_and_again(pets):
    """After each chunk."""
    said, reads = [], []
    for _ in range(4):
        assert in_a_process(lambda: packed(pets, progress=lambda *_: die())) == -signal.SIGKILL
        reads.append(counted(pets).reads())
    result = packed(pets, say=said.append)
    assert said == ["4 of 4 chunks have been decoded by an earlier start: going on after them"]
    assert [len(read) for read in reads] == [COUNT + CHUNK, CHUNK, CHUNK, 2], "the first looks at all for their size"
    assert_right(result, pets)


def test_what_was_decoded_is_checked(pets):
    """A chunk of the part file that is not what the journal says is decoded again, others are not."""
    with pytest.raises(ZeroDivisionError):
        packed(pets, progress=lambda done, total: 1 / (9 - done))
    part = next((pets / ".bort").glob("*.part"))
    content = bytearray(part.read_bytes())
    content[CHUNK * IMAGE] ^= 1
    part.write_bytes(content)
    counted(pets).reads()
    assert_right(packed(pets), pets)
    assert counted(pets).reads() == [
        *("train/cat/3.png", "train/dog/0.png", "train/dog/1.png"),
        *("val/dog/0.png", "val/dog/1.png"),
    ]


@pytest.mark.parametrize("lost", ["part", "journal"])
def test_one_half_of_what_was_decoded_is_lost(pets, lost):
    with pytest.raises(ZeroDivisionError):
        packed(pets, progress=lambda done, total: 1 / (6 - done))
    next((pets / ".bort").glob(f"*.{lost}")).unlink()
    assert_right(packed(pets), pets)
    assert endings(pets / ".bort") == COMPLETE


def test_what_was_decoded_of_other_files_is_removed(pets):
    with pytest.raises(ZeroDivisionError):
        packed(pets, progress=lambda done, total: 1 / (6 - done))
    os.utime(pets / "val/dog/1.png", ns=(0, 1))
    for own in ("4711-1", "host-4711.4711-1"):  # left of writing a manifest, with and without a lock
        left = pets / f".bort/packed-0123456789abcdef.{own}.writing"
        left.touch()
        os.utime(left, (0, 0))
    assert_right(packed(pets), pets)
    assert endings(pets / ".bort") == COMPLETE


class Held:
    """A process that packs with one worker, which is held at the third image that it decodes."""

    def __init__(self, root):
        context = multiprocessing.get_context("fork")
        self._flag, self._pid, self._seen = root / "go on", context.Value("i", 0), 0
        self.process = context.Process(target=self._pack, args=(root,))
        self.process.start()
        wait_for(lambda: self._pid.value)
        self.worker = self._pid.value

    def go_on(self):
        self._flag.touch()

    def _pack(self, root):
        self._packing = os.getpid()
        Counted.hook = self._hook
        packed(root, workers=1, chunk=COUNT)

    def _hook(self, file):
        self._seen += os.getpid() != self._packing  # which looks at all images for their size
        if self._seen == 3:
            self._pid.value = os.getpid()
            wait_for(self._flag.exists)


def test_workers_end_with_their_parent(pets):
    """Before their next image."""
    held = Held(pets)
    counted(pets).reads()
    held.process.kill()
    held.process.join()  # with a limit it would wait for the worker as well, which has inherited a pipe
    held.go_on()
    wait_for(lambda: not is_running(held.worker))
    assert counted(pets).reads() == []
    assert_right(packed(pets, chunk=COUNT), pets)


def test_workers_leave_signals_to_their_parent(pets):
    """Those of a terminal."""
    held = Held(pets)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(held.worker, number)
    held.go_on()
    held.process.join(60)
    assert held.process.exitcode == 0
    assert_right(packed(pets), pets)


def test_killed_at_any_time(pets):
    """With several workers: the next one does not decode again what was complete."""

    def slow(file):
        time.sleep(0.01)

    def start():
        Counted.hook = slow
        packed(pets, workers=2, chunk=1)

    process = multiprocessing.get_context("fork").Process(target=start)
    process.start()
    wait_for(lambda: any(len(path.read_text().splitlines()) > 3 for path in (pets / ".bort").glob("*.journal")))
    process.kill()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with (pets / ".bort/lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the workers, which were forked, hold it until they end
    counted(pets).reads()
    assert_right(packed(pets, chunk=1), pets)
    assert len(counted(pets).reads()) <= COUNT - 3


def test_an_exception_ends_the_workers(pets):
    with pytest.raises(KeyboardInterrupt):
        packed(pets, workers=2, progress=lambda *_: signal.raise_signal(signal.SIGINT))
    assert multiprocessing.active_children() == []
    assert_right(packed(pets, workers=2), pets)


def test_a_worker_that_is_killed(pets):
    def hook(file):
        if file == "val/dog/1.png" and multiprocessing.parent_process():
            die()

    Counted.hook = hook
    with pytest.raises(RuntimeError, match=r"has ended with exit code -9 .* start again to go on from there"):
        packed(pets, workers=1)
    Counted.hook = None
    counted(pets).reads()
    assert_right(packed(pets), pets)
    assert counted(pets).reads() == ["val/dog/0.png", "val/dog/1.png"]


def test_an_error_in_a_worker(pets):
    def hook(file):
        if multiprocessing.parent_process():
            raise KeyError("something odd")

    Counted.hook = hook
    with pytest.raises(RuntimeError, match="KeyError: 'something odd'"):
        packed(pets, workers=2)


@pytest.mark.slow
def test_processes_that_are_not_forked(pets):
    """All that a worker needs goes through its pipe. (Python 3.14 no longer forks by default.)"""
    program = f"""
import multiprocessing
from pathlib import Path
from tests.data.small_folder import packed
multiprocessing.set_start_method("forkserver")
assert packed(Path({str(pets)!r}), workers=2) is not None
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    counted(pets).reads()
    assert_right(packed(pets), pets)
    assert counted(pets).reads() == []


def test_two_processes_at_once(pets):
    """The second waits for the first and decodes nothing."""
    context = multiprocessing.get_context("fork")
    decoding, waiting = context.Event(), context.Event()

    def first():
        def hook(file):
            decoding.set()
            assert waiting.wait(60)

        Counted.hook = hook
        packed(pets)

    def second():
        def say(line):
            assert line == f"another process is decoding images into {pets / '.bort'}: waiting for it"
            waiting.set()

        assert decoding.wait(60)
        assert_right(packed(pets, say=say), pets)

    processes = [context.Process(target=target) for target in (first, second)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert set(Counter(counted(pets).reads()).values()) == {2}, "once for the size, once to be decoded"
    assert endings(pets / ".bort") == COMPLETE


def test_the_second_goes_on_where_the_first_was_killed(pets):
    context = multiprocessing.get_context("fork")
    waiting = context.Event()

    def first():
        def progress(done, total):
            if done == 6:
                assert waiting.wait(60)
                die()

        packed(pets, progress=progress)

    process = context.Process(target=first)
    process.start()
    wait_for(lambda: any(len(path.read_text().splitlines()) == 3 for path in (pets / ".bort").glob("*.journal")))
    said = []
    result = packed(pets, say=lambda line: (said.append(line), waiting.set()))
    process.join(60)
    assert [line.partition(" ")[0] for line in said] == ["another", "2"]
    assert_right(result, pets)
