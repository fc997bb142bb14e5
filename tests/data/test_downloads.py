"""Downloads from a server of our own on this machine: whole, interrupted, refused, wrong."""

import contextlib
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from bort.data._published import Published, obtain

CONTENT = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Sends CONTENT; /cut breaks off in the middle of every answer, /refused answers 403. ``ranges`` are those requested."""

    ranges: ClassVar[list] = []

    def do_GET(self):
        self.ranges.append(self.headers.get("Range"))
        if self.path == "/refused":
            self.send_error(403)
            return
        start = int(self.headers["Range"].split("=")[1].rstrip("-")) if "Range" in self.headers else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        body = CONTENT[start:]
        self.wfile.write(body[: len(body) // 2] if self.path == "/cut" and len(body) > 300_000 else body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    Handler.ranges.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_file_that_is_missing_is_downloaded_once(server, tmp_path):
    file = Published("whole", f"{server}/whole", DIGEST)
    for _ in range(2):
        assert obtain(file, tmp_path / "new" / "folder").read_bytes() == CONTENT
    assert Handler.ranges == [None]
    assert [p.name for p in (tmp_path / "new" / "folder").iterdir()] == ["whole"]


def test_an_interrupted_download_goes_on(server, tmp_path):
    file = Published("cut", f"{server}/cut", DIGEST)
    with pytest.raises(FileNotFoundError, match=DIGEST):
        obtain(file, tmp_path)
    for _ in range(20):
        with contextlib.suppress(FileNotFoundError):
            obtain(file, tmp_path)
    assert (tmp_path / "cut").read_bytes() == CONTENT
    assert Handler.ranges[1] is not None, "the second request continues the first"
    assert [p.name for p in tmp_path.iterdir()] == ["cut"]


@pytest.mark.parametrize("url", ["{}/refused", "http://127.0.0.1:9/nobody-there"])
def test_offline_or_refused_the_error_says_what_to_do(server, tmp_path, url):
    file = Published("some-file.gz", url.format(server), DIGEST)
    with pytest.raises(FileNotFoundError) as caught:
        obtain(file, tmp_path)
    message = str(caught.value)
    assert "some-file.gz" in message
    assert DIGEST in message
    assert str(tmp_path) in message
    assert not list(tmp_path.iterdir())


def test_another_file_under_its_name_is_not_kept(server, tmp_path):
    file = Published("whole", f"{server}/whole", "0" * 64)
    with pytest.raises(FileNotFoundError, match="hash"):
        obtain(file, tmp_path)
    assert not list(tmp_path.iterdir())
