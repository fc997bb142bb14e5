"""The paper's tables and figures, run again: one JSON file for each result, and pages made from these files.

The names below are imported when they are used: `bort --help` lists the tables without loading torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bort.reproduce._registry import TABLES, get

if TYPE_CHECKING:
    from bort.reproduce._pages import charts, pages
    from bort.reproduce._result import Result
    from bort.reproduce._run import reproduce
    from bort.reproduce._table import Experiment, Table, Trained

__all__ = ["TABLES", "Experiment", "Result", "Table", "Trained", "charts", "get", "pages", "reproduce"]

_HOME = {
    "Experiment": "_table",
    "Result": "_result",
    "Table": "_table",
    "Trained": "_table",
    "charts": "_pages",
    "pages": "_pages",
    "reproduce": "_run",
}
_RENAMED = {"Job": "Experiment", "PLANS": "TABLES for the names, and get(name) for a table", "results": "pages"}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        # Not AttributeError: `from bort.reproduce import PLANS` would replace its message by "cannot import name".
        raise ImportError(f"bort.reproduce.{name} is gone: use bort.reproduce.{_RENAMED[name]}")
    if name not in _HOME:
        raise AttributeError(f"module 'bort.reproduce' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bort.reproduce.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
