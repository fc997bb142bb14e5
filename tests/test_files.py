"""Files that are written at once or not at all."""

import os
import threading
from pathlib import Path

import pytest

from bort._files import is_scratch, write_atomically


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path, monkeypatch):
    """The second begins and ends while the first has its content on the disk, but not yet in place."""
    file, replace, names = tmp_path / "page.md", os.replace, []

    def interrupted(scratch, target):
        names.append(Path(scratch).name)
        if len(names) == 1:
            other = threading.Thread(target=write_atomically, args=(file, "second"))
            other.start()
            other.join()
            assert file.read_text() == "second"
        replace(scratch, target)

    monkeypatch.setattr(os, "replace", interrupted)
    write_atomically(file, "first")
    assert file.read_text() == "first"
    assert len(set(names)) == 2
    assert all(is_scratch(name) and str(os.getpid()) in name for name in names)
    assert not is_scratch(file.name)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("stem", ["a" * 251, "あ" * 83])
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path, monkeypatch, stem):
    file, replace, scratches = tmp_path / f"{stem}.png", os.replace, []

    def recorded(scratch, target):
        scratches.append(Path(scratch).name)
        replace(scratch, target)

    monkeypatch.setattr(os, "replace", recorded)
    write_atomically(file, b"pixels")
    assert file.read_bytes() == b"pixels"
    assert all(map(is_scratch, scratches))


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
def test_nothing_is_left_of_a_failure(tmp_path, monkeypatch, error):
    file = tmp_path / "page.md"
    file.write_text("before")

    def fail(scratch, target):
        assert Path(scratch).exists()
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(error):
        write_atomically(file, "after")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("page.md", "before")]
