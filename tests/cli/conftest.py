"""The commands, as typed."""

import sys

import pytest

from bort.cli import main
from tests.train.small import fit


@pytest.fixture
def bort(monkeypatch):
    """A function: `bort ARGUMENTS`, in this process."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["bort", *map(str, arguments)])
        main()

    return call


@pytest.fixture(scope="package")
def run(tmp_path_factory):
    """A small run, which this process and others can load."""
    return fit(tmp_path_factory.mktemp("run") / "small")


@pytest.fixture
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
