"""What the server answers with about a channel, see `_answers`."""

from __future__ import annotations

from pydantic import Field

from bort.app._answers import Answer
from bort.app._atlas import State


class AtlasStatus(Answer):
    """How far an atlas is: which test images excite a layer's channels."""

    state: State
    message: str = Field(description="Why it failed.")
    known: int = Field(description="Test images that have been looked at.")
    images: int = Field(description="How many it will be, unless it takes too long.")
    dead: list[int] = Field(description="Channels that no image so far excites.")


class ExcitedBy(Answer):
    image: str
    value: float = Field(description="The channel's largest activation.")
    name: str = Field(description="The image's class, or the predicted one.")


class ExcitedClass(Answer):
    number: int = Field(alias="class")
    name: str
    mean: float = Field(description="Of the channel's largest activation, over the class's images.")
    images: int


class ChannelPage(Answer):
    known: int = Field(description="Test images that this is of.")
    active: int = Field(description="Images with an activation above 0.")
    strongest: float
    by_label: bool = Field(description="Whether classes are those of the images; otherwise those that are predicted.")
    excited: list[ExcitedBy] = Field(description="The images that excite the channel most, the first one most.")
    classes: list[ExcitedClass] = Field(description="The most exciting first.")


class ExcitedPlace(Answer):
    image: str
    value: float
    box: tuple[float, float, float, float] = Field(description="Left, top, width and height as parts of the image's.")
    pattern: str = Field(description="A data URL of a PNG: the pattern in the box.")


class LogitChange(Answer):
    number: int = Field(alias="class")
    name: str
    change: float = Field(description="Of the logit when the channel is switched off, the mean over the images.")


class PortraitAnswer(Answer):
    places: list[ExcitedPlace]
    mean: str | None = Field(description="A data URL of a PNG: the mean of the patterns; null if no image excites it.")
    is_whole: bool = Field(description="Whether the boxes are whole images.")
    changes: list[LogitChange] = Field(description="Largest first.")


class Alike(Answer):
    known: int = Field(description="Test images that both runs have looked at.")
    channel: int | None = Field(description="null if nothing can be said.")
    correlation: float | None
