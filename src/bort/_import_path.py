"""Functions by import path: ``package.module:function``, how other packages bring their networks and data sets."""

from __future__ import annotations

import importlib
from typing import Any


def is_import_path(text: str) -> bool:
    """Whether a text is of the form ``package.module:name``."""
    module, colon, name = text.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def import_object(path: str) -> Any:
    """The function or class at an import path. A ValueError says which part of the path does not exist."""
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # the module exists, but something that it imports does not
        raise ValueError(f"{path!r}: there is no module {error.name!r}. Is it installed, or on PYTHONPATH?") from None
    if not hasattr(module, name):
        raise ValueError(f"{path!r}: the module {module_name!r} has no {name!r}")
    function = getattr(module, name)
    if not callable(function):
        raise ValueError(f"{path!r} is a {type(function).__name__}, not a function")
    return function
