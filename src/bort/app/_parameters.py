"""What can be asked for, with its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query
from torch import Tensor

from bort import explain
from bort.app._explorer import Explorer

Name = Annotated[str, Query(max_length=200)]
Method = Annotated[str, Query(json_schema_extra={"enum": explain.names()})]
"""Any other is answered by the explorer, with 404."""
Some = Annotated[int | None, Query(ge=1, le=100_000)]
Drawn = Annotated[int | None, Query(ge=1, le=256)]
Start = Annotated[int, Query(ge=0, le=1_000_000)]
Class = Annotated[int | None, Query(ge=0, le=1_000_000)]
Part = Annotated[float, Query(ge=0, le=1)]
Threshold = Annotated[float | None, Query(ge=0, lt=1)]
Edits = Annotated[
    str,
    Query(
        max_length=4000,
        description="Channels to scale: 12:0,40:2.5 switches channel 12 off and makes channel 40 two and a half times as "
        "strong.",
    ),
]


@dataclass
class Map:
    """Which saliency map: shared by everything that is seen of one."""

    run: Name
    image: Name
    method: Method
    target: Class = None
    k: Some = None
    threshold: Threshold = None

    def of(self, explorer: Explorer) -> Tensor:
        return explorer.evidence.saliency(self.run, self.image, self.method, self.target, self.k, self.threshold)


Wanted = Annotated[Map, Depends()]


def edits_of(text: str) -> dict[int, float]:
    """Channels and their factors."""
    found = {}
    for part in filter(None, text.split(",")):
        channel, _, factor = part.partition(":")
        try:
            found[int(channel)] = float(factor)
        except ValueError:
            raise ValueError(f"edits: {part!r} is not channel:factor, such as 12:0.5.") from None
        if not abs(found[int(channel)]) <= 100:
            raise ValueError(f"edits: the factor of {part!r} must be from -100 to 100.")
    return found
