"""One thread a process, since the tests run in several and their matrices are small; and the same chance for each test."""

import gc
import os
import signal
import threading

os.environ["OMP_NUM_THREADS"] = "1"  # before torch, and for all processes that tests start

import pytest
import torch
from hypothesis import settings

from tests.pages import browser, runs, subjects

__all__ = ["browser", "runs", "subjects"]  # one browser for all tests of a process: playwright takes no second

pytest_plugins = ["tests.long"]

torch.set_num_threads(1)

# A program that a script starts in the background ignores Ctrl-C, and so do its processes; tests send it.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Slow machines are no reason to fail, and a red test must be red again when it is run again.
settings.register_profile("bort", deadline=None, derandomize=True, database=None)
settings.load_profile("bort")


@pytest.fixture(autouse=True)
def _seeded():
    """What a test draws does not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def net():
    """ACNN-Small, very narrow, in float64."""
    from bort import nets

    torch.manual_seed(0)
    return nets.create("acnn-small", width=0.02).double().eval()


@pytest.fixture(scope="module")
def x():
    """Three images for it."""
    return torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """What is imported stays: the garbage collector need not look through it in every test."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    """Or Triton's bindings, which are still there at the end, say that they leaked."""
    gc.unfreeze()
