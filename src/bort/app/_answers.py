"""What the server answers with. The description at /openapi.json is made from these models, and FastAPI checks every answer
against them."""

from __future__ import annotations

from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.responses import Response

from bort.app._calculations import State
from bort.measure import LayerAudit


class Answer(BaseModel):
    """A key that is not described is an error, not something to leave out silently."""

    model_config = ConfigDict(extra="forbid")


class LayerInfo(Answer):
    """A layer that has a map."""

    name: str
    channels: int
    height: int
    width: int


class RunInfo(Answer):
    name: str
    recipe: str = Field(description="Empty for a network that was not trained by a recipe.")
    accuracy: float | None
    colours: int = Field(description="Channels of the input: 1 is grey, 3 are colours.")
    layers: list[LayerInfo]
    top: str = Field(description="The last layer with a map; empty while there is no image to find it with.")


class ImageInfo(Answer):
    name: str
    label: str


class Defaults(Answer):
    state: dict[str, str] = Field(description="The page's state, as its address writes it.")
    choices: dict[str, list[str]] = Field(description="The values of those parts of the state that have few.")
    steps: int = Field(description="Of deletion and insertion.")
    patterns: int = Field(description="Channels shown at a time.")
    clusters: int = Field(description="Groups of channels.")


class Info(Answer):
    runs: list[RunInfo]
    images: list[ImageInfo]
    classes: list[str]
    methods: list[str]
    titles: dict[str, str] = Field(description="What methods are called on the page.")
    signed: list[str] = Field(description="Methods whose values below zero speak against the class.")
    slow: list[str] = Field(description="Methods that POST /api/jobs computes.")
    most_tracked: int = Field(description="The largest k of SAT.")
    defaults: Defaults


class Uploaded(Answer):
    image: str


class Prediction(Answer):
    number: int = Field(alias="class")
    name: str
    probability: float


class ChannelInfo(Answer):
    channel: int
    value: float
    row: int
    column: int


class PictureAnswer(Answer):
    picture: str = Field(description="A data URL of a PNG.")


class Channels(Answer):
    sheet: str = Field(description="A data URL of a PNG: the channels' patterns, row by row.")
    scale: float = Field(description="The size of the values with the strongest colours, the same for all patterns.")
    columns: int
    count: int = Field(description="Of the layer's channels.")
    channels: list[ChannelInfo]


class Signal(PictureAnswer):
    scale: float = Field(description="The size of the values with the strongest colours.")


class Reconstruction(Signal):
    correlation: float = Field(description="With the input.")


class Clusters(PictureAnswer):
    groups: list[int] = Field(description="Of each channel.")


class CalculationStatus(Answer):
    job: str
    state: State
    done: int
    total: int
    message: str


class Curve(Answer):
    deletion: list[float | None] = Field(description="null: the clean logit is too small for a relative score.")
    insertion: list[float | None]
    areas: tuple[float | None, float | None] = Field(description="Under deletion and under insertion.")


class Transplant(PictureAnswer):
    image: str = Field(description="What the network says of the picture; the next three likewise.")
    map: str
    source: str
    target: str
    like_source: float = Field(description="Correlation of the picture with the source.")
    like_target: float
    change: Signal | None = Field(description="The picture less the source, if that was asked for.")


class AuditColumn(Answer):
    key: str
    title: str
    meaning: str
    is_number: bool


_layer_fields: dict[str, Any] = {
    name: (hint | None if hint is float else hint, ...) for name, hint in get_type_hints(LayerAudit).items()
}
AuditedLayer = create_model(
    "AuditedLayer", __base__=Answer, shown=(dict[str, str], Field(description="By column, as text.")), **_layer_fields
)
"""A layer of `bort.audit`: its fields, null where a number does not exist, and the same as the table shows them."""


class AuditAnswer(Answer):
    columns: list[AuditColumn]
    images: int = Field(description="Test images that it was measured on.")
    layers: list[AuditedLayer]  # type: ignore[valid-type]


class Png(Response):
    media_type = "image/png"


class Zip(Response):
    media_type = "application/zip"
