"""Methods by name, so that a user's own is evaluated like ours."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable

from torch import Tensor

from bort.explain._cam import cam
from bort.explain._guided_ig import guided_ig
from bort.explain._integrated import integrated_gradients
from bort.explain._rise import rise
from bort.explain._sat import sat
from bort.explain._xrai import xrai

Method = Callable[..., Tensor]
"""(model, x, target=None, **its own options) -> saliency maps (N, H, W) of the images (N, C, H, W)."""

_METHODS: dict[str, Method] = {
    "cam": cam,
    "guided-ig": guided_ig,
    "ig": integrated_gradients,
    "rise": rise,
    "sat": sat,
    "xrai": xrai,
}


def register(name: str, method: Method) -> None:
    """Make a method known under a name, for `get` and for everything that evaluates methods by name."""
    if name in _METHODS:
        raise ValueError(f"a method called {name!r} is there already")
    _METHODS[name] = method


def get(name: str) -> Method:
    """The method called ``name``."""
    if name not in _METHODS:
        near = difflib.get_close_matches(name, _METHODS, n=2)
        raise ValueError(f"no method is called {name!r}; there are {', '.join(near or _METHODS)}")
    return _METHODS[name]


def options(name: str) -> list[str]:
    """What a method can be told beside model, images and target."""
    parameters = inspect.signature(get(name)).parameters.values()
    return [parameter.name for parameter in parameters][3:]


def names() -> list[str]:
    """All methods."""
    return list(_METHODS)
