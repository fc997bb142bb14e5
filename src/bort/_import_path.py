"""Objects by import path: ``package.module:name``, how other packages bring their networks and data sets."""

from __future__ import annotations

import importlib
from typing import Any


def is_import_path(text: str) -> bool:
    """Whether a text is of the form ``package.module:name``."""
    module, colon, name = text.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def import_object(path: str) -> Any:
    """The object at an import path. A ValueError says which part of the path does not exist."""
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # the module exists, and something that it imports does not
        raise ValueError(f"{path!r}: there is no module {error.name!r}. Is it installed, or on PYTHONPATH?") from None
    if not hasattr(found, name):
        raise ValueError(f"{path!r}: the module {module!r} has no {name!r}")
    return getattr(found, name)
