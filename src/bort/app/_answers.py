"""What the server answers with. The description at /openapi.json is made of this, and every answer is held against it."""

from __future__ import annotations

from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.responses import Response

from bort.app._jobs import State
from bort.measure._audit import LayerAudit


class Answer(BaseModel):
    """A key that is not described here is a mistake of ours, not something to leave out quietly."""

    model_config = ConfigDict(extra="forbid")


class Layer(Answer):
    """One that has a map."""

    name: str
    channels: int
    height: int
    width: int


class Run(Answer):
    name: str
    recipe: str
    accuracy: float | None
    layers: list[Layer]
    top: str = Field(description="The last layer with a map; empty while there is no image to find it with.")


class Image(Answer):
    name: str
    label: str


class Info(Answer):
    runs: list[Run]
    images: list[Image]
    classes: list[str]
    methods: list[str]
    slow: list[str] = Field(description="Methods that POST /api/jobs computes.")
    steps: int = Field(description="Of deletion and insertion.")
    most_tracked: int = Field(description="SAT's k at most.")


class Uploaded(Answer):
    image: str


class Prediction(Answer):
    number: int = Field(alias="class")
    name: str
    probability: float


class Channel(Answer):
    channel: int
    value: float
    row: int
    column: int


class Seen(Answer):
    picture: str = Field(description="A data URL of a PNG.")


class Channels(Answer):
    sheet: str = Field(description="A data URL of a PNG: the channels' patterns, row by row.")
    columns: int
    count: int = Field(description="Of the layer's channels.")
    channels: list[Channel]


class Reconstruction(Seen):
    correlation: float = Field(description="With the input.")


class Clusters(Seen):
    groups: list[int] = Field(description="Of each channel.")


class Calculation(Answer):
    job: str
    state: State
    done: int
    total: int
    message: str


class Curve(Answer):
    deletion: list[float]
    insertion: list[float]
    areas: tuple[float, float] = Field(description="Under deletion and under insertion.")


class Transplant(Seen):
    image: str = Field(description="What the network says of the picture; the others likewise.")
    map: str
    source: str
    target: str
    like_source: float
    like_target: float


_audited: dict[str, Any] = {
    name: (hint | None if hint is float else hint, ...) for name, hint in get_type_hints(LayerAudit).items()
}
Audited = create_model("Audited", __base__=Answer, **_audited)
"""A layer of `bort.audit`; null where a number does not exist."""


class Png(Response):
    media_type = "image/png"


class Zip(Response):
    media_type = "application/zip"
