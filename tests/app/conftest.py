import pytest

from bort.app._explorer import Explorer
from tests.pages import _networks, network

__all__ = ["_networks"]


@pytest.fixture(scope="module")
def explorer(runs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bort.train._run.build", network)
        return Explorer(runs, examples=6)
