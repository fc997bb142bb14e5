"""Recipes of version 0.1.0, where the options of all networks were fields of ``net``."""

from __future__ import annotations

from typing import Any

# field of net in 0.1.0: (its default, its name in net.options)
_FIELDS: dict[str, tuple[Any, str]] = {
    "width": (1.0, "width"),
    "narrowest": (1, "narrowest"),
    "drop_path": (0.0, "drop_path_rate"),
    "activation": ("relu", "activation"),
    "pool": ("max", "pool"),
    "last": ("linear", "last"),
}


def migrated(values: Any) -> Any:
    """The values of a recipe, with net.options instead of the old fields. Version 0.1.0 gave a network only the fields that
    were not at their defaults, and narrowest only together with a width."""
    net = values.get("net") if isinstance(values, dict) else None
    if not isinstance(net, dict) or "options" in net or not _FIELDS.keys() & net.keys():
        return values
    changed = {name for name, (default, _) in _FIELDS.items() if net.get(name, default) != default}
    if "width" not in changed:
        changed.discard("narrowest")
    options = {option: net[name] for name, (_, option) in _FIELDS.items() if name in changed}
    kept = {name: value for name, value in net.items() if name not in _FIELDS}
    return {**values, "net": {**kept, "options": options}}


def advice(name: str) -> str | None:
    """What to write instead of an old field of ``net``; None if it is none."""
    if name not in _FIELDS:
        return None
    return f"net.{name} is now net.options.{_FIELDS[name][1]}"
