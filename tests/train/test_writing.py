"""No room, no right, no folder: a clear error, and what was there is intact."""

import errno
import os

import pytest

from bort.train import _checkpoint, _history
from tests.train.processes import start
from tests.train.small import assert_same, fit


def test_disk_full(stopped, whole, monkeypatch):
    real = os.fsync

    def full(descriptor):
        if ".writing-" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(_checkpoint.os, "fsync", full)
        with pytest.raises(
            OSError, match=r"no checkpoint of step 12 in .*: No space left on device; earlier ones are intact"
        ):
            fit(stopped, save_steps=4)
    assert sorted(path.name for path in (stopped / "checkpoints").iterdir()) == ["step-000000004", "step-000000008"]
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
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "no checkpoint of step 8 in" in errors
    assert "File too large; earlier ones are intact" in errors
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000004"]
    assert_same(fit(tmp_path), whole)


def test_history_cannot_be_written(tmp_path, monkeypatch):
    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def write(self, _):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_history.Path, "open", lambda *_: Full())
    with pytest.raises(
        OSError, match=r"cannot write .*history\.jsonl: No space left on device; checkpoints are intact"
    ):
        _history.History(tmp_path / "history.jsonl").add({})


def test_read_only_directory(tmp_path, monkeypatch):
    """As root one may write everywhere, so the refusal is played."""
    from bort.train import _run

    def refuse(self, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(_run.Path, "mkdir", refuse)
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
