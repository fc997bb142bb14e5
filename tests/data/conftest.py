"""The tree of images that tests of packing use."""

import pytest

from tests.data.small_folder import Counted, write_images


@pytest.fixture
def pets(tmp_path, monkeypatch):
    monkeypatch.setenv("BORT_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(Counted, "hook", None)
    write_images(tmp_path / "pets")
    return tmp_path / "pets"


@pytest.fixture
def said():
    """For ``say``: the lines that were said."""
    return []
