"""PyTorch's own optimizer tests, with Bort's classes in the place of torch's.

    python tests/oracles/torch_optim.py [--file PATH/test/test_optim.py] [--out FILE.json]

Runs test/test_optim.py of PyTorch, with the tests of schedulers, averaging and differentiable steps that it imports, four
times: with torch's classes, and with ``bortify`` of each at λ 0, 0.001 and 0.1, on the CPU and on a GPU if there is one.
λ 0 must pass whatever torch passes; with a larger λ a test may fail in the ways that `EXPECTED` lists, with the words that
it fails in.

The files are those of the commit that the installed torch was built from. They are fetched from GitHub, or given by --file;
they are not part of this repository. Needs ``pip install expecttest``.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bort._environment import describe
from bort._table import table

FILES = ("test_optim.py", "optim/test_optim.py", "optim/test_lrscheduler.py", "optim/test_swa_utils.py")
ADDRESS = f"https://raw.githubusercontent.com/pytorch/pytorch/{torch.version.git_version}/test"
SETTINGS = ("torch", "0", "0.001", "0.1")
"""torch's own classes, and the λ of Bort's."""
OUTCOMES = ("passed", "skipped", "differs", "failed")
RESULT = Path(__file__).parent / "results" / "torch_optim.json"


@dataclass(frozen=True)
class Expected:
    """Tests that the penalty itself makes fail, and how."""

    tests: str
    error: str
    reason: str


_SMALLER = (
    "maximize=True: the loss is to rise in 20 steps. The penalty is never climbed: it makes the random 10 × 5 weights "
    "(σ up to 5) smaller, and the loss with them"
)
EXPECTED = (
    Expected(
        "test_complex_[A-Z]*",
        r"parameter '0' .* is complex",
        "a complex matrix under a constraint is refused: the constraint is defined for real weights",
    ),
    Expected(
        "test_errors_*",
        r"parameter '0' .* is complex",
        "optimizers that refuse complex weights themselves: Bort's complaint comes first, in other words",
    ),
    Expected(
        "*_SparseAdam_*",
        r"has a sparse gradient .* under a constraint",
        "a sparse gradient of a matrix under a constraint is refused: the penalty would move every row",
    ),
    Expected(
        "test_step_is_noop_for_zero_grads_*",
        "Tensor-likes are not close",
        "a weight off its constraint moves under the penalty, also if its gradient is 0",
    ),
    Expected("test_forloop_goes_right_direction_*", "not greater than", _SMALLER),
    Expected("test_param_groups_lr_*", "not greater than", _SMALLER),
    Expected("test_param_groups_weight_decay_*", "not greater than", _SMALLER),
)


class Outcomes(unittest.TestResult):
    """For each case "passed", "skipped", or the text of what it failed with."""

    def __init__(self) -> None:
        super().__init__()
        self.cases: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.cases.setdefault(test.id(), "passed")

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.cases[test.id()] = "passed"

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.cases[test.id()] = "skipped"

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.cases[test.id()] = f"{err[0].__name__}: {err[1]}"

    addError = addFailure

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.addFailure(test, err)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.cases[test.id()] = "UnexpectedSuccess"


def replace(constraint: float) -> None:
    """Put Bort's classes where the tests find torch's, under the same names, since tests look at the names.

    LBFGS stays: it evaluates its closure several times a step, and `bortify` refuses it.
    """
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db:
        if info.optim_cls is not torch.optim.LBFGS:
            info.optim_cls = _replacement(info.optim_cls, constraint)
            setattr(torch.optim, info.optim_cls.__name__, info.optim_cls)


def _replacement(base: type[torch.optim.Optimizer], constraint: float) -> type[torch.optim.Optimizer]:
    from bort import bortify

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        made.__init__(self, *args, **{"constraint": constraint} | kwargs)

    made = bortify(base)
    return type(made)(base.__name__, (made,), {"__init__": __init__, "__module__": base.__module__})


def run(file: Path, setting: str) -> dict[str, str]:
    """All cases with one kind of classes, in this process."""
    if setting != "torch":
        replace(float(setting))
    sys.path.insert(0, str(file.parent))
    import test_optim  # type: ignore[import-not-found]

    torch.set_num_threads(1)  # tensors of a few numbers
    outcomes = Outcomes()
    unittest.defaultTestLoader.loadTestsFromModule(test_optim).run(outcomes)
    return outcomes.cases


def run_apart(file: Path, setting: str) -> dict[str, str]:
    """The same in a process of its own: the test files read the classes when they are imported."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [sys.executable, __file__, "--file", str(file), "--out", out.name, "--only", setting]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # they warn a lot
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        cases: dict[str, str] = json.loads(Path(out.name).read_text())
    return cases


def fetch(folder: Path) -> Path:
    for name in FILES:
        address = f"{ADDRESS}/{name}"
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            urllib.request.urlretrieve(address, target)
        except OSError as error:
            raise SystemExit(f"{address}: {error}\nGive the file of a PyTorch checkout by --file PATH") from None
    return folder / FILES[0]


def rule_for(case: str, failure: str) -> Expected | None:
    name = case.rpartition(".")[2]
    return next((r for r in EXPECTED if fnmatch.fnmatchcase(name, r.tests) and re.search(r.error, failure)), None)


def judge(results: dict[str, dict[str, str]]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Each case's outcome in each setting, "differs" if that is expected; and the failures that are not, in full."""
    judged: dict[str, dict[str, str]] = {}
    unexpected: dict[str, str] = {}
    for case in results["torch"]:
        judged[case] = {}
        for setting, cases in results.items():
            outcome = cases.get(case, "missing")
            if outcome not in ("passed", "skipped"):
                if setting not in ("torch", "0") and rule_for(case, outcome):
                    outcome = "differs"
                else:
                    unexpected[f"{case}, {setting}"] = outcome
                    outcome = "failed"
            judged[case][setting] = outcome
    return judged, unexpected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="test/test_optim.py of a PyTorch checkout, beside its folder optim")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--only", choices=SETTINGS, help="one setting, and write what came of each case")
    arguments = parser.parse_args()
    if arguments.only:
        arguments.out.write_text(json.dumps(run(arguments.file, arguments.only)))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = arguments.file or fetch(Path(folder))
        results = {setting: run_apart(file, setting) for setting in SETTINGS}
        digests = {name: hashlib.sha256((file.parent / name).read_bytes()).hexdigest() for name in FILES}
    judged, unexpected = judge(results)
    counts = {setting: dict(Counter(outcomes[setting] for outcomes in judged.values())) for setting in SETTINGS}
    rows = [(setting, *(str(counts[setting].get(word, 0)) for word in OUTCOMES)) for setting in SETTINGS]
    print(table(("classes", *OUTCOMES), rows, right=(1, 2, 3, 4)))
    expected = [
        {
            "tests": rule.tests,
            "error": rule.error,
            "reason": rule.reason,
            "cases": {
                setting: sum(
                    outcomes[setting] == "differs" and rule_for(case, results[setting][case]) is rule
                    for case, outcomes in judged.items()
                )
                for setting in SETTINGS[2:]
            },
        }
        for rule in EXPECTED
    ]
    for rule in expected:
        print(f"{rule['tests']}, {rule['cases']}: {rule['reason']}")
    for case, failure in unexpected.items():
        print(f"\nnot expected: {case}\n{failure}")
    facts = {
        "command": shlex.join(["python", *sys.argv]),
        "torch_built_from": torch.version.git_version,
        "files_from": "--file" if arguments.file else ADDRESS,
        "files_sha256": digests,
        "counts": counts,
        "expected": expected,
        "unexpected": unexpected,
        "settings": SETTINGS,
        "cases": {case: " ".join(outcomes.values()) for case, outcomes in judged.items()},
    }
    arguments.out.write_text(json.dumps(describe(0) | facts, indent=1, ensure_ascii=False) + "\n")
    sys.exit(1 if unexpected else 0)


if __name__ == "__main__":
    main()
