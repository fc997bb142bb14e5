"""Uploads on their way: bounded in bytes and in number, and decoded one at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from fastapi import HTTPException, Request

from bort.app._exceptions import Busy
from bort.app._uploads import LARGEST_FILE

T = TypeVar("T")
_Task: TypeAlias = tuple[Future[Any], Callable[[bytes], Any], bytes]

MOST_BYTES: Final = 8 * LARGEST_FILE
"""Of all uploads that are being sent or wait."""
MOST_WAITING: Final = 4
"""Images that wait while another is decoded."""


class Intake:
    """What is sent, until it is decoded. Its methods are called in the server's event loop."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_waiting: int = MOST_WAITING) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._most_waiting, self._waiting = most_waiting, 0
        self._tasks: SimpleQueue[_Task | None] | None = None

    @asynccontextmanager
    async def read(self, request: Request, limit: int = LARGEST_FILE) -> AsyncIterator[bytearray]:
        """The body of a request, at most ``limit`` bytes, which count until the end of the block."""
        content = bytearray()
        too_large = HTTPException(413, f"The file is too large; at most {limit // 2**20} MB are taken.")
        if int(request.headers.get("content-length", 0)) > limit:
            raise too_large
        try:
            async for part in request.stream():
                content += part
                self._bytes += len(part)
                if len(content) > limit:
                    raise too_large
                if self._bytes > self._most_bytes:
                    raise Busy("Too many files are being sent at once; try again in a moment.")
            yield content
        finally:
            self._bytes -= len(content)

    async def decode(self, function: Callable[[bytes], T], content: bytes) -> T:
        """The function's result, computed when those before it have been."""
        if self._waiting > self._most_waiting:
            raise Busy(f"{self._most_waiting} images are waiting already; try again in a moment.")
        if self._tasks is None:
            # Always the same thread: malloc keeps what a thread has freed for that thread, and a server has dozens of them.
            # A daemon, which those of ThreadPoolExecutor are not: Python would not end before an image has been decoded.
            self._tasks = SimpleQueue()
            threading.Thread(target=_work, args=(self._tasks,), name="bort-decode", daemon=True).start()
        future: Future[T] = Future()
        self._waiting += 1
        try:
            self._tasks.put((future, function, content))
            return await asyncio.wrap_future(future)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the thread after its image; another upload would start one again."""
        if self._tasks is not None:
            self._tasks.put(None)
            self._tasks = None


def _work(tasks: SimpleQueue[_Task | None]) -> None:
    while (task := tasks.get()) is not None:
        future, function, content = task
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(content))
            except BaseException as error:
                future.set_exception(error)
        del task, future, function, content  # while it waits for the next one it holds no image
