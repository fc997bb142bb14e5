"""Values of options whose types only another package knows."""

from __future__ import annotations


def parse_value(text: str) -> int | float | str | bool:
    """What a person means by a text: a boolean or a number if it looks like one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
