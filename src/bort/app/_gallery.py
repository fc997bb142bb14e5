"""The images that can be chosen on the page."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class GalleryImage:
    name: str
    inputs: Mapping[str, Tensor]
    """(1, C, H, W) for each run, as its network sees the image: two trainings may normalise differently."""
    label: str = ""
    """The class of a test image; empty if it is not known, and for an image that was sent or drawn."""
    contrast: str = ""
    """"dark on bright" or "bright on dark" if the networks' own images are the other way round; otherwise empty."""
    inverse_of: str = ""
    """The name of the image that was inverted to make this one."""

    def info(self) -> dict[str, str]:
        """For the page."""
        return {"name": self.name, "label": self.label, "contrast": self.contrast, "inverse_of": self.inverse_of}


class Gallery:
    """Test images, of which the page offers the first few and has the others read by their names; and the last images that
    were sent or drawn.

    Args:
        read: returns a test image by its name, or raises Unknown.
        sent: how many images that were sent or drawn are kept; the oldest is dropped.
        kept: how many other test images stay in memory; the one that was used longest ago is dropped.
    """

    def __init__(self, read: Callable[[str], GalleryImage], sent: int = 16, kept: int = 32) -> None:
        self._lock, self._read, self._most_sent, self._most_kept = threading.Lock(), read, sent, kept
        self._offered: dict[str, GalleryImage] = {}
        self._sent: OrderedDict[str, GalleryImage] = OrderedDict()
        self._others: OrderedDict[str, GalleryImage] = OrderedDict()

    def offer(self, image: GalleryImage) -> None:
        """A test image that the page always shows."""
        with self._lock:
            self._offered[image.name] = image

    def send(self, image: GalleryImage) -> None:
        """The image becomes the newest of those that were sent, also if it is there already."""
        with self._lock:
            self._sent[image.name] = image
            self._sent.move_to_end(image.name)
            while len(self._sent) > self._most_sent:
                self._sent.popitem(last=False)

    def offered(self) -> Sequence[GalleryImage]:
        """The test images that the page always shows."""
        with self._lock:
            return [*self._offered.values()]

    def list(self) -> Sequence[GalleryImage]:
        """What the page shows: the test images that are offered, then those that were sent, oldest first."""
        with self._lock:
            return [*self._offered.values(), *self._sent.values()]

    def __getitem__(self, name: str) -> GalleryImage:
        with self._lock:
            if name in self._others:
                self._others.move_to_end(name)
            for images in (self._offered, self._sent, self._others):
                if name in images:
                    return images[name]
        image = self._read(name)  # without the lock: it may read a file
        with self._lock:
            self._others[name] = image
            while len(self._others) > self._most_kept:
                self._others.popitem(last=False)
        return image


def name_of(kind: str, content: bytes) -> str:
    """The same content has the same name."""
    return f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}"
