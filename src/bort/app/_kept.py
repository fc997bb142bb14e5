"""What the explorer remembers: the images that can be chosen, and the last things that were computed."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T")


class Unknown(LookupError):
    """No such run, image, layer or method."""


@dataclass(frozen=True)
class Shown:
    """An image that can be chosen."""

    name: str
    x: Tensor
    """(1, C, H, W), as the network sees it."""
    label: str


class Gallery:
    """Test images, and the last uploads; the oldest of them make room."""

    def __init__(self, lock: threading.RLock, uploads: int = 16) -> None:
        self._lock, self._most = lock, uploads
        self.images: OrderedDict[str, Shown] = OrderedDict()

    def add(self, name: str, x: Tensor, label: str) -> None:
        self.images[name] = Shown(name, x, label)

    def upload(self, content: bytes, x: Tensor) -> str:
        """The name of the image: the same file has the same one."""
        name = "upload-" + hashlib.sha256(content).hexdigest()[:16]
        with self._lock:
            self.add(name, x, "")
            for old in [each for each in self.images if each.startswith("upload-")][: -self._most]:
                del self.images[old]
        return name

    def __getitem__(self, name: str) -> Tensor:
        with self._lock:
            if name not in self.images:
                raise Unknown(f"There is no image {name!r} any more; choose another or send it again.")
            return self.images[name].x


class Kept:
    """The last results; one is made at a time."""

    def __init__(self, lock: threading.RLock, most: int = 48) -> None:
        self._lock, self._most = lock, most
        self._results: OrderedDict[Hashable, Any] = OrderedDict()

    def __call__(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of that key, made if it is not there."""
        with self._lock:
            if key not in self._results:
                self.put(key, make())
            self._results.move_to_end(key)
            found: T = self._results[key]
            return found

    def put(self, key: Hashable, result: Any) -> None:
        with self._lock:
            self._results[key] = result
            while len(self._results) > self._most:
                self._results.popitem(last=False)

    def get(self, key: Hashable) -> Any:
        with self._lock:
            return self._results.get(key)
