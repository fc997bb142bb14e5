"""One name, one network."""

from __future__ import annotations

from typing import Any

from torch import nn

from bort.nets._acnn import ACNNSmall
from bort.nets._lenet import LeNet

_NETS: dict[str, type[nn.Module]] = {"acnn-small": ACNNSmall, "lenet": LeNet}


def create(name: str, **options: Any) -> nn.Module:
    """The network called ``name``: "lenet" or "acnn-small"."""
    if name not in _NETS:
        raise ValueError(f"no network is called {name!r}; there are {', '.join(_NETS)}")
    return _NETS[name](**options)
