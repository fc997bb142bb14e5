"""Runs that several files look at."""

import pytest

from tests.train.small import fit


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody interrupted."""
    return fit(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def stopped(tmp_path):
    """A run with checkpoints of steps 4 and 8, stopped at 9."""

    def die(step):
        if step == 9:
            raise MemoryError

    with pytest.raises(MemoryError):
        fit(tmp_path, on_step=die, save_steps=4)
    return tmp_path
