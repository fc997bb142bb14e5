"""Bort-X: any torch optimizer, made bounded-orthogonal. Needs torch alone."""

from typing import Any

from torch.optim import SGD, AdamW

from bort.optim._bort import Bort
from bort.optim._bortify import bortify
from bort.optim._checkpoints import adapt_state_dict
from bort.optim._groups import ParamGroups, param_groups

__all__ = ["Bort", "BortA", "BortL", "BortS", "ParamGroups", "adapt_state_dict", "bortify", "param_groups"]

BortS = bortify(SGD)
BortA = bortify(AdamW)


def __getattr__(name: str) -> Any:
    if name != "BortL":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from timm.optim.lamb import Lamb
    except ImportError as error:
        raise ImportError(
            'BortL is built on timm\'s LAMB, and timm is not installed: pip install "bort[vision]"'
        ) from error
    globals()[name] = bortify(Lamb)
    return globals()[name]
