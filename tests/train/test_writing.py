"""No room, no right, no folder: a clear error, and what was there is intact."""

import errno
import os
from pathlib import Path

import pytest

from tests.train.processes import start
from tests.train.small import assert_same, fit, saved_steps


def no_room_for(monkeypatch, name):
    """Files with this name in their path cannot be brought to the disk."""
    fsync = os.fsync

    def full(descriptor):
        if name in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)


def test_disk_full(stopped, whole, monkeypatch):
    with monkeypatch.context() as patch:
        no_room_for(patch, ".writing-")
        with pytest.raises(
            OSError, match=r"no checkpoint of step 12 in .*: No space left on device; earlier ones are intact"
        ):
            fit(stopped, save_steps=4)
    assert saved_steps(stopped) == [4, 8]
    assert_same(fit(stopped), whole)


@pytest.mark.slow
def test_writing_really_fails(whole, tmp_path):
    """The system refuses files of more than 50 kB from step 6 on; a checkpoint has ten times that."""
    setup = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def on_step(step):
    if step == 6: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
"""
    run = start(tmp_path, setup, save_steps=4)
    assert run.wait() == 1
    errors = run.errors.read_text()
    assert "no checkpoint of step 8 in" in errors
    assert "File too large; earlier ones are intact" in errors
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000004"]
    assert_same(fit(tmp_path), whole)


def test_history_cannot_be_written(tmp_path, monkeypatch):
    no_room_for(monkeypatch, "history.jsonl")
    with pytest.raises(
        OSError, match=r"cannot write .*history\.jsonl: No space left on device; checkpoints are intact"
    ):
        fit(tmp_path)


def test_read_only_directory(tmp_path, monkeypatch):
    """Tests may run as root, who may write everywhere: the refusal is simulated."""

    def refuse(self, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OSError, match=r"cannot write a run into .*: Permission denied"):
        fit(tmp_path / "run")


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file; a run needs a folder"):
        fit(tmp_path / "file")


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("ten years of work")
    with pytest.raises(ValueError, match="has files in it but is not a run"):
        fit(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
