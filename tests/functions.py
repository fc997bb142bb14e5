"""Every function that looks at a model, as benchmarks/architectures.py calls it."""

import importlib
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

sys.path.append(str(BENCHMARKS))
try:
    architectures = importlib.import_module("architectures")
finally:
    sys.path.remove(str(BENCHMARKS))

FUNCTIONS = architectures.FUNCTIONS
GRADIENTS = ("reconstruct", "decompose", "synthesize", "cam", "sat", "ig", "guided-ig", "xrai")
"""Those that go back through the model."""
QUICK = (
    "audit",
    "reconstruct",
    "cam",
    "sat",
    "ig",
    "guided-ig",
    "rise",
    "deletion and insertion",
    "robustness",
    "randomised",
)
