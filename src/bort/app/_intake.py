"""Uploads on their way: bounded in bytes and in number, and decoded one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from fastapi import HTTPException, Request

from bort.app._exceptions import Busy
from bort.app._uploads import LARGEST_FILE

T = TypeVar("T")

MOST_BYTES: Final = 8 * LARGEST_FILE
"""Of all uploads that are being sent or wait."""
MOST_WAITING: Final = 4
"""Images that wait while another is decoded."""


class Intake:
    """What is sent, until it is decoded. Its methods are called in the server's event loop."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_waiting: int = MOST_WAITING) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._most_waiting, self._waiting = most_waiting, 0
        self._thread: ThreadPoolExecutor | None = None

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
        if self._thread is None:
            # Always the same thread: malloc keeps what a thread has freed for that thread, and a server has dozens of them.
            self._thread = ThreadPoolExecutor(1, "bort-decode")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, content)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the thread; another upload would start it again."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
