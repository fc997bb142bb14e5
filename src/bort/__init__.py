"""Bort: torch optimizers that keep the layers of a network near-orthogonal, and tools to look inside networks.

The names below are imported when they are used, so that ``import bort`` is fast and ``bort.optim`` needs torch alone.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bort import _timm

if TYPE_CHECKING:
    from bort._show import show as show
    from bort.app import explore as explore
    from bort.measure import audit as audit
    from bort.optim import BortA as BortA
    from bort.optim import BortL as BortL
    from bort.optim import BortS as BortS
    from bort.optim import bortify as bortify
    from bort.optim import constraint_for as constraint_for
    from bort.optim import param_groups as param_groups

__version__ = "0.2.0"
__all__ = ["BortA", "BortL", "BortS", "audit", "bortify", "constraint_for", "explore", "param_groups", "show"]

_HOME = {"audit": "bort.measure", "explore": "bort.app", "show": "bort._show"} | dict.fromkeys(
    ("BortA", "BortL", "BortS", "bortify", "constraint_for", "param_groups"), "bort.optim"
)
_MODULES = (
    *("app", "augment", "data", "explain", "invert", "layers", "measure", "monitor", "nets", "optim", "penalty"),
    *("pictures", "report", "reproduce", "subject", "train"),
)

_timm.register_when_imported()


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _HOME:
        raise AttributeError(f"module 'bort' has no attribute {name!r}")
    try:
        module = importlib.import_module(_HOME.get(name, f"bort.{name}"))
    except ModuleNotFoundError as error:  # numpy, above all: packages but `optim`, `monitor` and `penalty` use it
        raise ImportError(f'bort.{name} needs {error.name}: pip install "bort[vision]"', name=error.name) from error
    return getattr(module, name) if name in _HOME else module


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_MODULES])
