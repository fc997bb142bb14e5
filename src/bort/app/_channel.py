"""What an atlas says of one channel: the images and the classes that excite it, and the channel of another network that is
most alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bort.app._atlas_store import Atlas
from bort.app._exceptions import Unknown
from bort.data import View

EXCITED: Final = 9
"""Images that excite a channel most, of those that are shown."""


@dataclass(frozen=True)
class Excitement:
    """How strongly the images of a class excite a channel: the mean of its largest activation over them."""

    number: int
    mean: float
    images: int


class ChannelFacts:
    """Of one channel, over the first ``known`` images of an atlas."""

    def __init__(self, atlas: Atlas, layer: str, channel: int, known: int | None = None) -> None:
        if not 0 <= channel < atlas.channels:
            raise Unknown(f"The layer {layer} has channels 0 to {atlas.channels - 1}, not {channel}.")
        self.known = atlas.known if known is None else min(known, atlas.known)
        self.values: NDArray[np.float32] = atlas.values[: self.known, channel]
        self.places: NDArray[np.int32] = atlas.places[: self.known, channel]
        labels = atlas.labels[: self.known]
        self.by_label = bool((labels >= 0).any())
        """Whether the classes of the images are known; otherwise they are those that the network predicts."""
        self._classes = labels if self.by_label else atlas.classes[: self.known]

    @property
    def active(self) -> int:
        """Images with an activation above 0."""
        return int((self.values > 0).sum())

    @property
    def strongest(self) -> float:
        """0 if nothing is known."""
        known = self.values[~np.isnan(self.values)]
        return float(known.max()) if len(known) else 0.0

    def excited(self) -> list[int]:
        """The numbers of the images that excite it most, the first one most; none that leaves it at 0 or below."""
        order = np.argsort(-np.nan_to_num(self.values, nan=-np.inf), kind="stable")
        return [int(number) for number in order[:EXCITED] if self.values[number] > 0]

    def by_class(self) -> list[Excitement]:
        """All classes with images, the most exciting first."""
        seen = ~np.isnan(self.values) & (self._classes >= 0)
        found = []
        for number in np.unique(self._classes[seen]):
            own = self.values[seen & (self._classes == number)]
            found.append(Excitement(int(number), float(own.mean()), len(own)))
        return sorted(found, key=lambda one: -one.mean)

    def described(self, view: View) -> dict[str, Any]:
        """All of it for the page and for exports, with the names of classes."""
        return {
            "known": self.known,
            "active": self.active,
            "strongest": self.strongest,
            "by_label": self.by_label,
            "excited": [
                {
                    "image": f"test-{number}",
                    "value": float(self.values[number]),
                    "name": view.name(int(self._classes[number])),
                }
                for number in self.excited()
            ],
            "classes": [
                {"class": one.number, "name": view.name(one.number), "mean": one.mean, "images": one.images}
                for one in self.by_class()
            ],
        }


def dead(atlas: Atlas) -> list[int]:
    """The channels that no known image excites; none while nothing is known."""
    values = atlas.values[: atlas.known]
    return [] if not len(values) else np.flatnonzero(~(values > 0).any(axis=0)).tolist()


def most_alike(atlas: Atlas, channel: int, other: Atlas, known: int | None = None) -> tuple[int, float] | None:
    """The channel of the other atlas that the same images excite, and the correlation of the two over the images that both
    know, or the first ``known``; None if this one is the same for all of them."""
    known = min(atlas.known, other.known) if known is None else min(atlas.known, other.known, known)
    one, all_others = atlas.values[:known, channel].astype(float), other.values[:known].astype(float)
    read = ~(np.isnan(one) | np.isnan(all_others).any(axis=1))
    one, all_others = one[read] - one[read].mean() if read.any() else one[read], all_others[read]
    if not len(one) or not one.any():
        return None
    centred = all_others - all_others.mean(axis=0)
    sizes = np.linalg.norm(centred, axis=0) * np.linalg.norm(one)
    correlations = np.divide(one @ centred, sizes, out=np.full(len(sizes), -np.inf), where=sizes > 0)
    best = int(correlations.argmax())
    return (best, float(correlations[best])) if np.isfinite(correlations[best]) else None
