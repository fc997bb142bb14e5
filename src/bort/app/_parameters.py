"""What the page can ask for, with its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends
from pydantic import Field, GetJsonSchemaHandler
from torch import Tensor

from bort import explain
from bort.app._exceptions import Unknown
from bort.app._explorer import Explorer


class _MethodNames:
    """Lists the methods in the description at /openapi.json, those included that were registered after the server started.
    Others are refused by the explorer, with 404."""

    def __init__(self, *, slow_only: bool = False) -> None:
        self._slow_only = slow_only

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        names = [name for name in explain.names() if not self._slow_only or explain.get(name).slow]
        return {**handler(schema), "enum": names}


Name = Annotated[str, Field(max_length=2000)]
"""Of classes too, which may be whole sentences."""
Method = Annotated[str, _MethodNames()]
SlowMethod = Annotated[str, _MethodNames(slow_only=True)]
ChannelCount = Annotated[int, Field(ge=1, le=100_000)]
PatternCount = Annotated[int, Field(ge=1, le=256)]
"""Each pattern is a way back through the network."""
Start = Annotated[int, Field(ge=0, le=1_000_000)]
ClassNumber = Annotated[int, Field(ge=0, le=1_000_000)]
Strength = Annotated[float, Field(ge=0, le=1)]
Threshold = Annotated[float, Field(ge=0, lt=1)]
Wrong = Annotated[
    str,
    Field(
        pattern="^(any|all|[0-9]{1,2})?$",
        description="any: a network is wrong; all: all of them are; 0: the first one is.",
    ),
]
PageNumber = Annotated[int, Field(ge=0, le=1_000_000)]
ChosenChannels = Annotated[
    str,
    Field(
        max_length=2000,
        pattern=r"^(\d{1,3}\.\d{1,6}(,\d{1,3}\.\d{1,6})*)?$",
        description="0.12,0.40,1.3: channels 12 and 40 of the first run, and channel 3 of the second.",
    ),
]
Edits = Annotated[
    str,
    Field(
        max_length=4000,
        description="Channels to scale: 12:0,40:2.5 switches channel 12 off and makes channel 40 two and a half times as "
        "strong; *:0,12:1 switches all but channel 12 off.",
        json_schema_extra={"pattern": "^[0-9.,:;*-]*$"},  # others are refused with a sentence that says more
    ),
]
Options = Annotated[
    str,
    Field(
        max_length=400,
        description="Of the method, those that /api/info lists: steps:32,signed:1.",
        json_schema_extra={"pattern": "^[A-Za-z0-9_.,:+-]*$"},  # others are refused with a sentence that says more
    ),
]


@dataclass
class SaliencyRequest:
    """Which saliency map: the parameters of everything that is shown of one."""

    run: Name
    image: Name
    method: Method
    target: ClassNumber | None = None
    k: ChannelCount | None = None
    threshold: Threshold | None = None
    options: Options = ""

    def map(self, explorer: Explorer) -> Tensor:
        options = options_of(self.method, self.options)
        return explorer.saliency.map(self.run, self.image, self.method, self.target, self.k, self.threshold, options)


RequestedMap = Annotated[SaliencyRequest, Depends()]


def options_of(method: str, text: str) -> dict[str, bool | int | float]:
    """Options of a method and their values."""
    if method not in explain.names():
        raise Unknown(f"There is no method {method!r}.")
    settings, values = explain.get(method).settings, {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition(":")
        if name not in settings:
            there_are = f"there are {', '.join(settings)}" if settings else "it has none to be set here"
            raise ValueError(f"options: {method} has no option {name!r}; {there_are}.")
        values[name] = settings[name].read(value)
    return values
