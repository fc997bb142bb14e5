"""What the explorer remembers: the images that can be chosen, and the last things that were computed."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from bort.app._lock import Turn

T = TypeVar("T")


class Unknown(LookupError):
    """No such run, image, layer or method."""


@dataclass(frozen=True)
class Shown:
    """An image that can be chosen."""

    name: str
    x: Mapping[str, Tensor]
    """(1, C, H, W) for each run, as its network sees it: two trainings may normalise differently."""
    label: str


class Gallery:
    """Test images, and the last uploads; the oldest of them make room."""

    def __init__(self, uploads: int = 16) -> None:
        self._lock, self._most = threading.Lock(), uploads
        self.images: OrderedDict[str, Shown] = OrderedDict()

    def add(self, name: str, x: Mapping[str, Tensor], label: str) -> None:
        self.images[name] = Shown(name, x, label)

    def upload(self, content: bytes, x: Mapping[str, Tensor]) -> str:
        """The name of the image: the same file has the same one, and is young again."""
        name = "upload-" + hashlib.sha256(content).hexdigest()[:16]
        with self._lock:
            self.images.pop(name, None)
            self.add(name, x, "")
            for old in [each for each in self.images if each.startswith("upload-")][: -self._most]:
                del self.images[old]
        return name

    def list(self) -> list[Shown]:
        with self._lock:
            return list(self.images.values())

    def __getitem__(self, name: str) -> Mapping[str, Tensor]:
        with self._lock:
            if name not in self.images:
                raise Unknown(f"There is no image {name!r} any more; choose another or send it again.")
            return self.images[name].x


class Kept:
    """The last results. They are made one at a time, in turn; looking at one waits for nobody."""

    def __init__(self, turn: Turn, most: int) -> None:
        self._turn, self._most = turn, most
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, Any] = OrderedDict()

    def __call__(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of that key, made if it is not there."""
        found: T | None = self.get(key)
        if found is None:
            with self._turn:
                found = self.get(key)  # somebody may have made it meanwhile
                if found is None:
                    found = make()
                    self.put(key, found)
        return found

    def put(self, key: Hashable, result: Any) -> None:
        with self._lock:
            self._results[key] = result
            self._results.move_to_end(key)
            while len(self._results) > self._most:
                self._results.popitem(last=False)

    def get(self, key: Hashable) -> Any:
        """None if it is not there; who is asked for is young again."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
            return self._results.get(key)
