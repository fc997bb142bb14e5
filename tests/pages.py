"""What tests of pages share: small runs, and a browser."""

import shutil
from dataclasses import replace

import pytest

from bort import nets
from tests.train.small import RECIPE, fit

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def network(recipe):
    return nets.create("acnn-small", width=0.05, narrowest=4)


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Two trainings of a second, one with a name that HTML and TeX would read as something else."""
    folder = tmp_path_factory.mktemp("runs")
    names = {"plain": RECIPE, "<b>&$\\alpha$": replace(RECIPE, seed=1)}
    return [fit(folder / name, recipe, network=network).path for name, recipe in names.items()]


@pytest.fixture(autouse=True)
def _networks(monkeypatch):
    monkeypatch.setattr("bort.train._run.build", network)


@pytest.fixture(scope="session")
def browser():
    """`make test` installs one; elsewhere it is whatever is there."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        try:
            started = playwright.chromium.launch(executable_path=found, args=FLAGS)
        except api.Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield started
        started.close()
