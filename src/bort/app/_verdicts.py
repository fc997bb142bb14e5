"""What a network says of an image, for the page."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bort.data import View


def likeliest(probabilities: Tensor, view: View, count: int = 5) -> list[dict[str, Any]]:
    """The classes (C,) with the highest probabilities, the first one first."""
    top = probabilities.topk(min(count, len(probabilities)))
    return [
        {"class": int(number), "name": view.name(int(number)), "probability": float(probability)}
        for probability, number in zip(top.values, top.indices, strict=True)
    ]
