"""An option of a method that a person may set, between bounds: a slider of the explorer, or a box to tick."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Value = bool | int | float
Range = tuple[Value, Value]


@dataclass(frozen=True)
class Setting:
    """An option whose default is a number, or True or False.

    Example:
        >>> setting = explain.Setting("steps", "integer", default=50, least=1, most=200)
        >>> setting.read("20")
        20
    """

    name: str
    kind: Literal["boolean", "integer", "number"]
    default: Value
    least: Value
    most: Value

    def read(self, text: str) -> Value:
        """The value that a text means: a number within the bounds; 0 or 1 for False and True."""
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not self.least <= value <= self.most or (self.kind != "number" and value != int(value)):
            whole = "" if self.kind == "number" else "a whole number "
            raise ValueError(f"{self.name}={text}: must be {whole}from {self.least:g} to {self.most:g}")
        if self.kind == "number":
            return value
        return bool(value) if self.kind == "boolean" else int(value)


def settings_of(function: Callable[..., Any], ranges: Mapping[str, Range]) -> dict[str, Setting]:
    """The settings of a function by name. A range is refused that is not of an option, or that its default is not in."""
    parameters = inspect.signature(function).parameters if ranges else {}
    settings = {}
    for name, (least, most) in ranges.items():
        default = parameters[name].default if name in parameters else None
        if not isinstance(default, (bool, int, float)) or not least <= default <= most:
            raise ValueError(
                f"ranges={{{name!r}: ({least}, {most})}}: it must be of an option whose default is a number in it"
            )
        kind: Any = "boolean" if isinstance(default, bool) else "integer" if isinstance(default, int) else "number"
        settings[name] = Setting(name, kind, default, least, most)
    return settings
