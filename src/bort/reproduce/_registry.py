"""The list of tables. A new one is one file, ``bort/reproduce/<name>.py`` with a :class:`Table` called ``TABLE``, and one
line here. Without torch, for `bort --help`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bort.reproduce._table import Table

TABLES: Final[dict[str, str]] = {
    "table1": "accuracy on MNIST and CIFAR-10 (the paper's table 1)",
    "lenet": "which LeNet the paper may have meant",
    "settings": "settings other than the paper's",
    "deep": "a deep plain network, on built-in digits",
    "table2": "Table 2 in small: Tiny ImageNet 100 at 64 px, not ImageNet",
    "pull": "how strong to pull: accuracy, explanations and robustness by λ · Σ lr",
    "table3": "deletion and insertion (the paper's table 3)",
    "modern": "deletion and insertion on DeiT-S and ResNet-50, with sanity checks",
    "figures": "figures 3 to 6, drawn and in numbers",
    "ablation": "weight decay by λ (the paper's figure 7)",
}
"""Name and content of each, in the order of RESULTS.md. The name is that of its module and of its folder of results."""


def get(name: str) -> Table:
    """The table called ``name``; its module is imported now.

    Example:
        >>> reproduce.get("table1").seeds
        (0, 1, 2)
    """
    if name not in TABLES:
        raise ValueError(f"no table is called {name!r}; there are {', '.join(TABLES)}")
    table: Table = importlib.import_module(f"bort.reproduce.{name}").TABLE
    return table
