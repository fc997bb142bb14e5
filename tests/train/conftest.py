"""Runs that several files look at."""

import pytest

from tests.train.small import fit, stripes


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run without interruption."""
    return fit(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def stopped(tmp_path):
    """A run with checkpoints of steps 4 and 8 that failed at step 9."""

    def die(step):
        if step == 9:
            raise MemoryError

    with pytest.raises(MemoryError):
        fit(tmp_path, on_step=die, save_steps=4)
    return tmp_path


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with the folder "stripes": two classes, 14 and 6 images of 40 × 40."""
    path = tmp_path_factory.mktemp("images")
    stripes(path / "stripes")
    return path
