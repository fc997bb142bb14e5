"""The package as users get it: built, and installed into environments that have what pip would bring with it and nothing
else, neither this source tree nor the other packages of the tests."""

import importlib.metadata
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The source distribution, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def distributions(extra):
    """All that `pip install bort[extra]` brings, out of the running environment: the closure of what packages require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = {"": project["dependencies"], **project["optional-dependencies"]}
    waiting = [(Requirement(need), "") for need in own[""] + own[extra]]
    done = {}
    while waiting:
        need, of_extra = waiting.pop()
        if need.marker is not None and not need.marker.evaluate({"extra": of_extra}):
            continue
        if need.name == "bort":
            waiting += [(Requirement(each), "") for inner in need.extras for each in own[inner]]
            continue
        for wanted in ("", *need.extras):
            if (need.name, wanted) in done:
                continue
            try:
                found = importlib.metadata.distribution(need.name)
            except importlib.metadata.PackageNotFoundError:
                break  # pip has decided that it is not needed here
            done[need.name, wanted] = found
            waiting += [(Requirement(each), wanted) for each in found.requires or ()]
    return {name: found for (name, _), found in done.items()}


class Installed:
    """A virtual environment with the wheel, and links to the packages that it needs."""

    def __init__(self, folder, wheel, extra):
        venv.create(folder, symlinks=True)
        self.folder = folder
        (packages,) = folder.glob("lib/python*/site-packages")
        for found in distributions(extra).values():
            for top in {Path(str(file)).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                source, link = Path(found.locate_file(top)), packages / top
                if source.suffix != ".pth" and source.exists() and not link.exists():
                    link.symlink_to(source)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(folder / "bin" / "python"),
            "install",
            "--quiet",
            "--no-deps",
        ]
        subprocess.run([*pip, "--disable-pip-version-check", "--no-index", str(wheel)], check=True)

    def run(self, *command, cwd):
        """A program of the environment, in another folder than the source tree."""
        cleared = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [self.folder / "bin" / command[0], *command[1:]],
            env=cleared | {"OMP_NUM_THREADS": "1", "BROWSER": "true"},
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="session")
def installed(built, tmp_path_factory):
    """A function: the environment with an extra, "" for torch alone."""
    made = {}

    def environment(extra):
        if extra not in made:
            made[extra] = Installed(tmp_path_factory.mktemp("installed") / "environment", built[1], extra)
        return made[extra]

    return environment
