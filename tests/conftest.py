"""One thread a process, since the tests run in several and their matrices are small; the same chance for each test; and which
tests are long, as measured."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.pages import browser, runs, subjects

__all__ = ["browser", "runs", "subjects"]  # one browser for all tests of a process: playwright takes no second

torch.set_num_threads(1)

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


LONG = Path(__file__).with_name("long.txt")
"""Tests that took more than `LIMIT` seconds when they were measured: `make check` leaves them out."""
LIMIT = 0.3


def pytest_addoption(parser):
    parser.addoption("--write-long", action="store_true", help="measure which tests are long: writes tests/long.txt")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    long = set(LONG.read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in long:
            item.add_marker(pytest.mark.long)


def pytest_configure(config):
    if config.getoption("--write-long") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Durations())


class _Durations:
    """Writes the list, of the files whose tests have run; entries of others stay."""

    def __init__(self):
        self.seconds = Counter()

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration if report.when == "call" else 0

    def pytest_sessionfinish(self):
        measured = {test.partition("::")[0] for test in self.seconds}
        entries = LONG.read_text(encoding="utf-8").splitlines()
        long = {test for test in entries if test.partition("::")[0] not in measured}
        long |= {test for test, seconds in self.seconds.items() if seconds > LIMIT}
        LONG.write_text("".join(f"{test}\n" for test in sorted(long)), encoding="utf-8")
