"""The oldest versions that pyproject.toml allows, tried: ``make floors``.

Makes a virtual environment with the lowest version of every direct dependency of ``bort[docs]`` (so of all extras but dev),
runs the tests of `PARTS` there, and writes what came of it to docs/floors.json, which tests/release/test_floors.py compares
with pyproject.toml.

    python -m tests.release.floors [PART …]      # some parts only; the results of the others stay
"""

import datetime
import json
import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "docs" / "floors.json"
FOLDER = ROOT / "build" / "floors"

PARTS = {
    "penalty": "tests/test_penalty.py tests/test_layers.py tests/test_pictures.py tests/test_show.py tests/test_intervals.py",
    "models": "tests/test_outputs.py tests/test_layouts.py tests/test_half.py tests/test_failures.py tests/test_wrapped.py",
    "optim": "tests/optim",
    "nets": "tests/nets tests/data",
    "train": "tests/train",
    "explain": "tests/explain tests/invert",
    "measure": "tests/measure",
    "subject": "tests/subject",
    "monitor": "tests/monitor",
    "cli": "tests/cli",
    "report": "tests/report",
    "app": "tests/app",
    "docs": "tests/docs",
    "augment": "tests/augment",
    "distributed": "tests/distributed",
    "tables": "tests/reproduce tests/benchmarks tests/examples",
    "root": "tests/test_architecture.py tests/test_architectures.py tests/test_colours.py tests/test_files.py "
    "tests/test_imports.py tests/test_inspect.py tests/test_precision.py tests/test_timm.py",
}
"""What is run, without the slow tests."""

LEFT_OUT = {
    "tests/optim/test_integrations.py": "Accelerate and other packages of the tests",
    "tests/optim/test_pytorch_optimizer.py": "pytorch_optimizer, a package of the tests",
    "tests/app/test_schema.py": "schemathesis, a package of the tests",
    "tests/examples/test_notebook.py": "nbclient, a package of the tests",
    "tests/augment/test_mix.py::test_cutmix_is_distributed_as_timms": "timm 1.0.22's boxes of odd sides are a pixel smaller",
    "tests/augment/test_notation.py::test_means_what_it_means_in_timm[rand-inc0]": "timm 1.0.22 reads inc0 as inc1",
    "tests/optim/test_amp.py::test_other_half_precision_weights_can_be_scaled[bfloat16]": "torch 2.10's fused SGD on a CPU "
    "does not move bfloat16 weights whose gradients are scaled",
    "tests/optim/test_lamb.py::test_timms_goes_on_with_our_checkpoint": "timm up to 1.0.26 differs by 3e-9",
}
"""And what is not, with the reason."""

TOOLS = ("hypothesis", "httpx", "pytest", "pytest-xdist", "tensorboard")
"""What the tests themselves need, in the versions of constraints.txt."""


def floors() -> dict[str, str]:
    """The lowest version of each dependency by pyproject.toml, without those of dev."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [needs for extra, needs in project["optional-dependencies"].items() if extra != "dev"]
    pairs = [re.fullmatch(r"([\w-]+)>=([\w.]+)", need) for need in sum(extras, project["dependencies"])]
    return {pair[1]: pair[2] for pair in pairs if pair is not None}


def install() -> Path:
    """Make the environment anew; returns its python."""
    python = FOLDER / "bin" / "python"
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()[1:])
    tools = [f"{tool}=={pins[tool]}" for tool in TOOLS] + ["schedulefree>=1.4"]
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(FOLDER)], check=True)
    command = [*uv, "pip", "install", "--python", str(python), "--resolution", "lowest-direct"]
    subprocess.run([*command, "-r", "pyproject.toml", "--extra", "docs", *tools], cwd=ROOT, check=True)
    return python


def run(python: Path, part: str) -> dict[str, object]:
    """One part of the tests: how many passed, and what did not."""
    report = FOLDER / f"{part}.xml"
    # Old versions warn of older ones; that is no failure here.
    options = ["-q", "-m", "not slow", "-o", "filterwarnings=default", "-p", "no:cacheprovider", f"--junitxml={report}"]
    options += [f"--deselect={test}" if "::" in test else f"--ignore={test}" for test in LEFT_OUT]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [str(python), "-m", "pytest", *options, *PARTS[part].split()], cwd=ROOT, env=environment, check=False
    )
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {
        "tests": PARTS[part],
        "passed": len(cases) - len(failed) - skipped,
        "skipped": skipped,
        "failed": [f"{case.get('classname')}::{case.get('name')}" for case in failed],
    }


def versions(python: Path) -> dict[str, str]:
    """Those that are in the environment, Python's own first."""
    program = (
        "import importlib.metadata, platform, sys\n"
        "print(platform.python_version(), *map(importlib.metadata.version, sys.argv[1:]))"
    )
    names = list(floors())
    told = subprocess.run([str(python), "-I", "-c", program, *names], check=True, capture_output=True, text=True).stdout
    return dict(zip(["python", *names], told.split(), strict=True))


def commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    others = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{RESULT.relative_to(ROOT)}")
    return git("rev-parse", "HEAD") + (", changed" if others else "")


def main(parts: list[str]) -> None:
    python = FOLDER / "bin" / "python"
    if not parts or not python.exists():
        python = install()
    results = json.loads(RESULT.read_text())["results"] if RESULT.exists() and parts else {}
    for part in parts or PARTS:
        at = {"date": datetime.date.today().isoformat(), "commit": commit()}
        results[part] = at | run(python, part)
        written = {
            "command": "make floors",
            "versions": versions(python),
            "left out": LEFT_OUT,
            "results": {name: results[name] for name in PARTS if name in results},
        }
        RESULT.write_text(json.dumps(written, indent=2) + "\n")
    failed = [test for result in results.values() for test in result["failed"]]
    sys.exit("\n".join(["These tests fail with the oldest versions:", *failed]) if failed else None)


if __name__ == "__main__":
    main(sys.argv[1:])
