"""What tests of pages share: small runs, the subjects in them, and a browser."""

import shutil
from dataclasses import replace

import pytest

from bort.subject import resolve_all
from bort.train.recipes import Net
from tests.train.small import RECIPE, fit

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

NARROW = replace(RECIPE, net=Net("acnn-small", {"width": 0.05, "narrowest": 4}))
"""Five convolutions with maps, the top one of 130 channels."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Two trainings of a second, one with a name that HTML and TeX would read as something else."""
    folder = tmp_path_factory.mktemp("runs")
    recipes = {"plain": NARROW, "<b>&$\\alpha$": replace(NARROW, seed=1)}
    return [fit(folder / name, recipe).path for name, recipe in recipes.items()]


@pytest.fixture
def subjects(runs):
    return resolve_all(runs)


@pytest.fixture(scope="session")
def browser():
    """`make test` installs one; elsewhere it is whatever is there."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        program = next(filter(None, map(shutil.which, BROWSERS)), None)
        try:
            started = playwright.chromium.launch(executable_path=program, args=FLAGS)
        except api.Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield started
        started.close()
