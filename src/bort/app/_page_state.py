"""All that the page's address says: which view, of what, how."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query

from bort.app._saliency import MOST_TRACKED, STEPS
from bort.app._explorer import Explorer
from bort.app._parameters import Class, Edits, Method, Name, Part, Some, Start, Threshold, edits_of


@dataclass
class View:
    """The names and defaults are those of the page's own state (page/state.js)."""

    view: Literal["inside", "evidence", "transplant", "audit"] = "inside"
    image: Name = ""
    layer: Name = ""
    part: Literal["all", "k"] = "all"
    k: Some = 64
    binary: bool = True
    start: Start = 0
    channel: Annotated[str, Query(max_length=40, description="0.12 is channel 12 of the first run.")] = ""
    edits: Edits = ""
    clusters: bool = False
    method: Method = "sat"
    target: Class = None
    tracked: Some = 64
    threshold: Threshold = 0.2
    strength: Part = 0.6
    score: Literal["relative", "logit", "probability"] = "relative"
    which: Literal["deletion", "insertion"] = "deletion"
    step: Annotated[int, Query(ge=0, le=STEPS)] = 0
    other: Name = ""
    path: Literal["source", "target", "none"] = "none"

    def of(self, explorer: Explorer, number: int) -> Seen:
        """For one of the runs: a layer or a number of channels that it does not have is brought to what it has."""
        run = list(explorer.subjects)[number]
        known = [each["name"] for each in explorer.layers(run)]
        layer = self.layer if self.layer in known else explorer.top(run)
        mine, _, channel = self.channel.partition(".")
        edits = self.edits.split(";")
        return Seen(
            run,
            layer,
            min(self.k or 64, explorer.channels_of(run, layer)) if layer else 1,
            min(self.tracked or 64, MOST_TRACKED, explorer.channels_of(run, explorer.top(run))) if layer else 1,
            int(channel) if mine == str(number) and channel.isdecimal() else None,
            edits_of(edits[number]) if number < len(edits) else {},
        )

    def address(self) -> str:
        """What stands behind the page's own address."""
        usual = {each.name: each.default for each in fields(self)}
        said = {name: value for name, value in asdict(self).items() if value != usual[name] and value is not None}
        return "?" + urlencode({name: int(value) if value in (True, False) else value for name, value in said.items()})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Seen:
    """What of a view is one run's own."""

    run: str
    layer: str
    k: int
    tracked: int
    channel: int | None
    edits: dict[int, float]


AView = Annotated[View, Depends()]
