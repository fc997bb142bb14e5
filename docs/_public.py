"""The public names of bort and what is written about them: for the API reference, and for the tests of the documentation."""

from __future__ import annotations

import ast
import importlib
import inspect
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

PACKAGES = (
    *("optim", "penalty", "layers", "explain", "invert", "measure", "train", "data", "augment", "nets", "subject"),
    *("report", "app", "monitor", "pictures", "reproduce"),
)
"""One page of the reference each, docs/api/NAME.rst; another one is `bort` itself."""

MODULES = (
    "bort",
    *(f"bort.{package}" for package in PACKAGES),
    *("bort.optim.reference", "bort.train.recipes"),
    *("bort.monitor.lightning", "bort.monitor.pytorch_lightning", "bort.monitor.huggingface"),
)
"""Whatever has an ``__all__`` for users. (`optim.kernels` and `optim.sharded` have one for the rest of `optim`.)"""


class Name(NamedTuple):
    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def value(self) -> Any:
        return getattr(importlib.import_module(self.module), self.name)

    @property
    def is_data(self) -> bool:
        """A constant or a type, which cannot have a docstring of its own."""
        return not (inspect.isclass(self.value) or inspect.isroutine(self.value) or inspect.ismodule(self.value))

    @property
    def doc(self) -> str:
        """The docstring; of a constant or a type the text below its definition."""
        return _below(*_home(self.module, self.name)) if self.is_data else inspect.getdoc(self.value) or ""


def names() -> list[Name]:
    """All that the modules list in their ``__all__``."""
    return [Name(module, name) for module in MODULES for name in importlib.import_module(module).__all__]


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


def _home(module: str, name: str) -> tuple[str, str]:
    """The module that defines a constant: its package only imports it."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            return _home(node.module, name)
    return module, name


def _below(module: str, name: str) -> str:
    body = _tree(module).body
    for node, after in pairwise(body):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        assigned = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        if name in assigned and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            return inspect.cleandoc(str(after.value.value))
    return ""
