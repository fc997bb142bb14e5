"""Many large images sent at once: one is decoded at a time, and the server's memory stays small."""

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from fastapi import HTTPException

from bort.app._exceptions import Busy
from bort.app._intake import Intake
from tests.app.files import large_png
from tests.cli.servers import port_of, serving


def run(coroutine):
    """In a thread: where tests of the page came before, this one has an event loop that runs."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, coroutine).result()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux' /proc")
def test_sixteen_large_images_at_once():
    """Each took 600 MB when all were decoded at once, 9 GB together."""
    content = large_png(5000, 4999)
    with serving("tests.cli.networks:subject", "--port", 0) as server, ThreadPoolExecutor(16) as threads:
        address = f"http://localhost:{port_of(server)}/api/"

        def peak():
            return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())[1]) / 1024

        httpx.get(address + "info")
        before = peak()
        answers = list(threads.map(lambda _: httpx.post(address + "upload", content=content, timeout=120), range(16)))
        assert peak() - before < 300, "megabytes"
    assert {answer.status_code for answer in answers} == {200, 503}
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert refused.json() == {"message": "4 images are waiting already; try again in a moment."}


class Sent:
    """A request whose body comes in pieces."""

    def __init__(self, *pieces, headers=None):
        self._pieces, self.headers = pieces, headers or {}

    async def stream(self):
        for piece in self._pieces:
            yield piece


def test_all_that_is_sent_is_bounded():
    async def refused(*pieces, error, words, headers=None):
        with pytest.raises(error, match=words):
            async with intake.read(Sent(*pieces, headers=headers), 8):
                pass

    async def send():
        async with intake.read(Sent(b"1234", b"56"), 8) as first:
            assert first == b"123456"
            await refused(b"1234", b"5", error=Busy, words="Too many files")
            async with intake.read(Sent(b"1234"), 8) as second:
                assert second == b"1234"
        await refused(b"1234", b"56789", error=HTTPException, words="too large")
        await refused(error=HTTPException, words="too large", headers={"content-length": "9"})  # nothing is read
        async with intake.read(Sent(b"12345678"), 8) as last:
            assert len(last) == 8, "what was refused counts no more"

    with closing(Intake(most_bytes=10)) as intake:
        run(send())


def test_a_program_can_end_while_an_image_is_decoded():
    go = threading.Event()
    with closing(Intake()) as intake:

        async def send():
            before = set(threading.enumerate())
            decoding = asyncio.create_task(intake.decode(lambda content: go.wait(10), b""))
            while not (begun := set(threading.enumerate()) - before):
                await asyncio.sleep(0)
            assert all(thread.daemon for thread in begun), "Python waits for those that are not"
            go.set()
            assert await decoding

        run(send())


def test_one_at_a_time_and_few_that_wait():
    go, at_work, most = threading.Event(), [], []

    def work(content):
        at_work.append(content)
        most.append(len(at_work))
        assert go.wait(10)
        at_work.remove(content)
        return content.upper()

    async def send():
        tasks = [asyncio.create_task(intake.decode(work, name)) for name in (b"a", b"b", b"c", b"d")]
        with pytest.raises(Busy, match="2 images are waiting already"):
            await tasks[-1]
        go.set()
        assert await asyncio.gather(*tasks[:-1]) == [b"A", b"B", b"C"]
        assert await intake.decode(work, b"e") == b"E", "there is room again"

    with closing(Intake(most_waiting=2)) as intake:
        run(send())
    assert most == [1, 1, 1, 1]
