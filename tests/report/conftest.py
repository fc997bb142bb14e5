"""A report of two runs, made once for all tests of pages."""

import pytest

from bort.report import make
from bort.subject import resolve_all
from tests.report.sizes import SMALL


@pytest.fixture(scope="session")
def report(runs):
    calls = []
    made = make(resolve_all(runs), sizes=SMALL, say=lambda *call: calls.append(call))
    assert calls[-1] == ("report", 11, 11)
    assert made.missing == {}
    return made


@pytest.fixture(scope="session")
def page(report, tmp_path_factory):
    """The page's file, and all files that were written."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    return file, report.write(file)
