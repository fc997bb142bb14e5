"""The images that can be chosen on the page."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from bort.app._exceptions import Unknown

_UPLOAD = "upload-"


@dataclass(frozen=True)
class GalleryImage:
    name: str
    inputs: Mapping[str, Tensor]
    """(1, C, H, W) for each run, as its network sees the image: two trainings may normalise differently."""
    label: str
    """The class of a test image; empty for an upload."""


class Gallery:
    """Test images, and the last ``uploads`` that were sent; the oldest upload is dropped."""

    def __init__(self, uploads: int = 16) -> None:
        self._lock, self._uploads = threading.Lock(), uploads
        self._images: OrderedDict[str, GalleryImage] = OrderedDict()

    def add(self, name: str, inputs: Mapping[str, Tensor], label: str) -> None:
        with self._lock:
            self._images[name] = GalleryImage(name, inputs, label)

    def upload(self, content: bytes, inputs: Mapping[str, Tensor]) -> str:
        """The name of the image. The same file has the same name, and becomes the newest upload again."""
        name = _UPLOAD + hashlib.sha256(content).hexdigest()[:16]
        with self._lock:
            self._images.pop(name, None)
            self._images[name] = GalleryImage(name, inputs, "")
            for oldest in [other for other in self._images if other.startswith(_UPLOAD)][: -self._uploads]:
                del self._images[oldest]
        return name

    def list(self) -> list[GalleryImage]:
        with self._lock:
            return list(self._images.values())

    def __getitem__(self, name: str) -> GalleryImage:
        with self._lock:
            if name not in self._images:
                raise Unknown(f"There is no image {name!r} any more; choose another or send it again.")
            return self._images[name]
