"""A package that nobody here knows of brings a saliency method, a network and a data set: examples/plugin, installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run_python(tmp_path_factory: pytest.TempPathFactory):
    """A function that runs a Python program in an environment where the package is installed; and a folder for its files."""
    folder = tmp_path_factory.mktemp("plugin")
    site, source = folder / "site", folder / "source"
    shutil.copytree(PLUGIN, source)  # a build leaves files beside the sources
    install = [
        "install",
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
        str(source),
    ]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, cwd=folder)
    environment = os.environ | {"PYTHONPATH": str(site), "PIP_NO_INPUT": "1"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, cwd=folder, env=environment, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run.folder = folder  # type: ignore[attr-defined]
    return run


@pytest.fixture(scope="module")
def trained(run_python) -> Path:
    """A run of the package's network on the package's data."""
    network = ("--net.name", "bort_example:two_convolutions", "--net.options", "width=16")
    data = ("--data.name", "bort_example:stripes", "--data.image-size", "16", "--data.classes", "2")
    how = ("--epochs", "3", "--batch", "50", "--device", "cpu", "--out", "stripes")
    run_python("-m", "bort", "train", "mnist5k-lenet-bort-s", *network, *data, *how)
    return run_python.folder / "stripes"


def test_its_network_learns_its_data(trained: Path) -> None:
    last = json.loads((trained / "history.jsonl").read_text().splitlines()[-1])
    assert last["accuracy"] > 0.9
    recipe = json.loads((trained / "recipe.json").read_text())
    assert recipe["net"] == {"name": "bort_example:two_convolutions", "options": {"width": 16}}


def test_its_method_explains_by_name_and_takes_its_own_option(trained: Path, run_python) -> None:
    for option in ("false", "true"):
        out = f"explained-{option}"
        run_python(
            "-m", "bort", "explain", "stripes", "--method", "input-gradient", "--option", f"times_input={option}",
            "--out", out
        )  # fmt: skip
        assert (run_python.folder / out / "test-0-input-gradient.png").exists()
    same = "import numpy as np, sys; sys.exit(bool((np.load(sys.argv[1]) == np.load(sys.argv[2])).all()))"
    run_python("-c", same, *(f"explained-{option}/test-0-input-gradient.npy" for option in ("false", "true")))


def test_its_method_is_in_the_report_and_in_the_explorer(trained: Path, run_python) -> None:
    few = ("--shown", "2", "--measured", "4", "--evaluated", "2", "--masks", "20", "--pairs", "4")
    run_python("-m", "bort", "report", "stripes", "--out", "stripes.html", *few)
    assert "input-gradient" in (run_python.folder / "stripes.html").read_text()
    program = (
        "from bort.app import Explorer; from bort.subject import resolve\n"
        "print(*Explorer([resolve('stripes')]).info()['methods'])"
    )
    assert "input-gradient" in run_python("-c", program)
