"""What the page shows, as its address says it: which view, of which image and layer, with which settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlencode

from fastapi import Depends
from pydantic import Field, TypeAdapter

from bort._defaults import DELETION_STEPS, OVERLAY_STRENGTH, SALIENT_CHANNELS, SAT_THRESHOLD
from bort.app._edits import ChannelEdits
from bort.app._explorer import Explorer
from bort.app._find import Order, Question
from bort.app._inside import Rank
from bort.app._parameters import (
    ChannelCount,
    ChosenChannels,
    ClassNumber,
    Edits,
    Method,
    Name,
    Options,
    PageNumber,
    Start,
    Strength,
    Wrong,
    options_of,
)
from bort.app._saliency import MOST_TRACKED


@dataclass
class PageState:
    """Every field is a parameter of the page's address, left out where it has its default. The page takes names, defaults,
    choices and bounds from here (:func:`page_defaults`)."""

    view: Literal["inside", "channel", "evidence", "transplant", "draw", "find", "audit"] = "inside"
    image: Name = ""
    layer: Name = ""
    part: Literal["all", "k"] = "all"
    k: ChannelCount = SALIENT_CHANNELS
    binary: bool = True
    start: Start = 0
    rank: Rank = "strength"
    channel: ChosenChannels = ""
    edits: Edits = ""
    clusters: bool = False
    method: Method = "sat"
    target: ClassNumber | None = None
    options: Options = ""
    tracked: ChannelCount = SALIENT_CHANNELS
    threshold: Annotated[float, Field(ge=0, le=0.95)] = SAT_THRESHOLD
    strength: Strength = OVERLAY_STRENGTH
    score: Literal["relative", "logit", "probability"] = "relative"
    which: Literal["deletion", "insertion"] = "deletion"
    step: Annotated[int, Field(ge=0, le=DELETION_STEPS)] = 0
    other: Name = ""
    path: Literal["none", "source", "target"] = "none"
    difference: bool = False
    sort: Annotated[
        str,
        Field(
            pattern=r"^(-?[a-z_]{1,30}\.\d{1,3})?$",
            description="-ratio.0: by the first run's ratio, the largest first.",
        ),
    ] = ""
    drawing: Annotated[str, Field(pattern="^(drawing-[0-9a-f]{16})?$")] = ""
    centre: bool = True
    find_label: Name = ""
    find_said: Name = ""
    find_wrong: Wrong = ""
    find_disagree: bool = False
    find_order: Order = "report"
    find_page: PageNumber = 0

    def __post_init__(self) -> None:
        # Refused at once, whatever the view is.
        self._edits()
        options_of(self.method, self.options)

    def _edits(self) -> list[ChannelEdits]:
        """One a run."""
        return [ChannelEdits.parse(part) for part in self.edits.split(";")]

    @property
    def question(self) -> Question:
        """What "Find images" asks."""
        return Question(
            self.find_label, self.find_said, self.find_wrong, self.find_disagree, self.find_order, self.find_page
        )

    def of_run(self, explorer: Explorer, number: int) -> RunState:
        """For one of the runs. A layer that it does not have becomes its top layer, and counts are cut to its channels."""
        run = list(explorer.subjects)[number]
        top = explorer.top(run)
        layer = self.layer if self.layer in [info["name"] for info in explorer.layers(run)] else top
        chosen = [part.partition(".") for part in self.channel.split(",")]
        edits = self._edits()
        return RunState(
            run,
            layer,
            min(self.k, explorer.channel_count(run, layer)) if layer else 1,
            min(self.tracked, MOST_TRACKED, explorer.channel_count(run, top)) if layer else 1,
            tuple(int(channel) for in_run, _, channel in chosen if in_run == str(number)),
            edits[number] if number < len(edits) else ChannelEdits(),
        )

    def address(self) -> str:
        """The query of the page's address."""
        defaults = PageState().to_dict()
        changed = {name: value for name, value in self.to_dict().items() if value != defaults[name]}
        return "?" + urlencode({name: _text(value) for name, value in changed.items()})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class RunState:
    """The part of the page's state that is one run's own."""

    run: str
    layer: str
    k: int
    tracked: int
    channels: tuple[int, ...]
    """Those that are chosen; the last one is shown large."""
    edits: ChannelEdits


RequestedState = Annotated[PageState, Depends()]


def page_defaults() -> dict[str, Any]:
    """Of every field, as the address writes it: its default; its choices, where it has few values; its bounds, where it is a
    number; its pattern, where it has one."""
    defaults: dict[str, Any] = {"state": {}, "choices": {}, "bounds": {}, "forms": {}}
    hints = get_type_hints(PageState, include_extras=True)
    for field in fields(PageState):
        name, schema = field.name, _schema(hints[field.name])
        defaults["state"][name] = _text(field.default)
        if get_origin(hints[name]) is Literal:
            defaults["choices"][name] = list(get_args(hints[name]))
        elif schema["type"] == "boolean":
            defaults["choices"][name] = ["0", "1"]
        elif schema["type"] in ("integer", "number"):
            ends = {"min": schema.get("minimum"), "max": schema.get("maximum")}
            defaults["bounds"][name] = ends | {"is_integer": schema["type"] == "integer"}
        elif "pattern" in schema:
            defaults["forms"][name] = schema["pattern"]
    return defaults


def _schema(hint: Any) -> dict[str, Any]:
    """The JSON schema of a field, where it is set."""
    schema: dict[str, Any] = TypeAdapter(hint).json_schema()
    return next(part for part in schema.get("anyOf", [schema]) if part.get("type") != "null")


def _text(value: Any) -> str:
    """As the page writes it into its address."""
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)
