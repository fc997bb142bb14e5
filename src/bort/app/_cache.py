"""The last results that were computed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from bort.app._lock import ComputeLock

T = TypeVar("T")


class Cache:
    """At most ``size`` results; the least recently used one is dropped. Results are computed under the compute lock, one at a
    time; reading one does not wait for that lock."""

    def __init__(self, lock: ComputeLock, size: int) -> None:
        self._compute_lock, self._size = lock, size
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, Any] = OrderedDict()

    def __call__(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The result of that key, computed if it is not there."""
        result: T | None = self.get(key)
        if result is None:
            with self._compute_lock:
                result = self.get(key)  # another thread may have computed it meanwhile
                if result is None:
                    result = compute()
                    self.put(key, result)
        return result

    def put(self, key: Hashable, result: Any) -> None:
        with self._lock:
            self._results[key] = result
            self._results.move_to_end(key)
            while len(self._results) > self._size:
                self._results.popitem(last=False)

    def get(self, key: Hashable) -> Any:
        """None if it is not there; a hit becomes the newest entry."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
            return self._results.get(key)
