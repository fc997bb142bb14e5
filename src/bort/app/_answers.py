"""What the server answers with. The description at /openapi.json is made from these models, and FastAPI checks every answer
against them."""

from __future__ import annotations

from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.responses import Response

from bort.app._calculations import State
from bort.app._index import State as IndexState
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
    patterns: int = Field(
        description="Of channels, to be asked for at a time: those of large images or networks take long."
    )
    layers: list[LayerInfo]
    top: str = Field(description="The last layer with a map; empty if there is none, or no image to find it with.")


class ImageInfo(Answer):
    name: str
    label: str = Field(description="The class of a test image; empty if it is not known.")
    contrast: str = Field(
        description='"dark on bright" or "bright on dark" if the networks\' own images are the other way round.'
    )
    inverse_of: str = Field(description="The image that was inverted to make this one; empty for others.")


class Canvas(Answer):
    rows: int = Field(description="Of the network's pixels.")
    columns: int
    scale: int = Field(description="How many rows and columns of the canvas make one of the network's.")
    paper: Literal["dark", "bright"]


class Bounds(Answer):
    min: float | None
    max: float | None
    is_integer: bool


class Defaults(Answer):
    state: dict[str, str] = Field(description="The page's state, as its address writes it.")
    choices: dict[str, list[str]] = Field(description="The values of those parts of the state that have few.")
    bounds: dict[str, Bounds] = Field(description="Of those parts of the state that are numbers.")
    forms: dict[str, str] = Field(description="Regular expressions of those that are texts of a certain form.")
    steps: int = Field(description="Of deletion and insertion.")
    patterns: int = Field(description="Channels shown at a time.")
    clusters: int = Field(description="Groups of channels.")


class OptionInfo(Answer):
    """An option of a method. True and False are 1 and 0 in requests."""

    model_config = ConfigDict(extra="forbid", from_attributes=True)
    name: str
    kind: Literal["boolean", "integer", "number"]
    default: bool | int | float
    least: bool | int | float
    most: bool | int | float


class Info(Answer):
    runs: list[RunInfo]
    images: list[ImageInfo]
    image_columns: int = Field(description="Of /api/strip.png.")
    image_side: int = Field(description="Of the first network's input, in pixels: the longer one.")
    drawing: Canvas | None
    no_drawing: str = Field(description="Why nothing can be drawn for these networks; empty if it can.")
    classes: list[str]
    methods: list[str]
    titles: dict[str, str] = Field(description="What methods are called on the page.")
    signed: list[str] = Field(description="Methods whose values below zero speak against the class.")
    slow: list[str] = Field(description="Methods that POST /api/jobs computes.")
    options: dict[str, list[OptionInfo]] = Field(description="Of each method those that can be set.")
    most_tracked: int = Field(description="The largest k of SAT.")
    needs_token: bool = Field(description="Whether others need a token to open the page.")
    defaults: Defaults


class Uploaded(Answer):
    image: str


class Prediction(Answer):
    number: int = Field(alias="class")
    name: str
    probability: float


class ClassChange(Answer):
    number: int = Field(alias="class")
    name: str
    before: float = Field(description="Probability.")
    after: float


class ChannelInfo(Answer):
    channel: int
    value: float = Field(description="Its largest activation.")
    row: int
    column: int
    effect: float | None = Field(
        description="Change of the class's logit without it; null if another rank was asked for."
    )


class PictureAnswer(Answer):
    picture: str = Field(description="A data URL of a PNG.")


class Channels(Answer):
    sheet: str = Field(description="A data URL of a PNG: the channels' patterns, row by row.")
    scale: float = Field(description="The size of the values with the strongest colours, the same for all patterns.")
    columns: int
    count: int = Field(description="Of the layer's channels.")
    channels: list[ChannelInfo]
    target: str | None = Field(description="The class that effects are on; null if another rank was asked for.")
    is_exact: bool = Field(description="False: effects are approximated by gradient × activation.")


class Signal(PictureAnswer):
    scale: float = Field(description="The size of the values with the strongest colours.")


class Reconstruction(Signal):
    correlation: float = Field(description="With the input.")
    scale: float = Field(description="The size of the values with the strongest colours.")


class Edit(PictureAnswer):
    """The reconstruction after the edits, on the scale of the one before, and what the network says of the edited map."""

    correlation: float = Field(description="With the input.")
    weaker: float = Field(description="How many times weaker than the one before it is shown: 1 unless much stronger.")
    difference: str = Field(description="A data URL of a PNG: after − before.")
    largest: float = Field(description="The largest difference, in levels (of 255) of the reconstruction's picture.")
    stronger: float = Field(description="How many times stronger than the reconstruction the difference is shown.")
    classes: list[ClassChange] = Field(description="The likeliest before or after, in the order of those before.")


class Clusters(PictureAnswer):
    groups: list[int] = Field(description="Of each channel.")


class CalculationStatus(Answer):
    job: str
    state: State
    done: int
    total: int
    message: str


class Drawn(Answer):
    run: str
    layer: str = Field(description="Empty for a network without a layer with a map, whose next three are null.")
    classes: list[Prediction]
    picture: str | None = Field(description="A data URL of a PNG: the reconstruction from the layer's whole map.")
    scale: float | None = Field(description="The size of the values with the strongest colours.")
    correlation: float | None = Field(description="With the input.")


class DrawingAnswer(Answer):
    drawing: str = Field(description="Its name, if it was to be kept.")
    picture: str = Field(description="A data URL of a PNG: the drawing as the first network sees it.")
    runs: list[Drawn]


class Said(Answer):
    said: str = Field(description="The name of the class that the run's network predicts.")
    probability: float
    right: bool | None = Field(description="null: the image's class is not known.")
    correlation: float | None = Field(description="Of the reconstruction from the top layer; null: not computed.")


class FoundImage(Answer):
    name: str
    label: str
    runs: list[Said]


class Found(Answer):
    state: IndexState
    message: str = Field(description="Why the index failed.")
    predicted: int = Field(description="Of so many images it is known what the networks say.")
    count: int = Field(description="Of test images in the index.")
    correlated: int
    correlated_count: int = Field(description="Of so many images the correlations will be known.")
    no_correlations: str = Field(description="Why networks have none; empty if all have.")
    labels: list[str] = Field(description="The true classes that occur.")
    said: list[str] = Field(description="The predicted classes that occur.")
    matches: int
    page: int
    pages: int
    images: list[FoundImage]
    sheet: str = Field(description="A data URL: the images row by row.")
    columns: int = Field(description="Of the sheet.")


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


class StoryAnswer(Answer):
    text: str = Field(description="The view in a sentence; empty if there is nothing to say.")
    pending: bool = Field(description="Whether the sentence will have numbers of more images: ask again.")


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
    n: int = Field(description="Test images that ratio, cosine, claim and agreement are over; 0: there are none.")
    left_out: int = Field(description="Of the first test images, those that cannot be read.")
    columns: list[AuditColumn]
    layers: list[AuditedLayer]  # type: ignore[valid-type]


class Png(Response):
    media_type = "image/png"


class Zip(Response):
    media_type = "application/zip"
