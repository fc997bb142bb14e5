"""Ctrl-C and SIGTERM end `bort serve` without a traceback, whatever it is doing, and its port is free at once."""

import http.client
import io
import json
import signal
import socket
import time
from contextlib import ExitStack, closing

import pytest
from PIL import Image

from bort.app._listen import listen
from tests.cli.servers import port_of, serving

pytestmark = pytest.mark.slow

NETWORK = "tests.cli.networks:sleeping"
PATIENCE = 30  # seconds: half as long as this network takes for a white image


def upload(connection, level):
    content = io.BytesIO()
    Image.new("L", (28, 28), level).save(content, "PNG")
    connection.request("POST", "/api/upload", content.getvalue())
    return json.loads(connection.getresponse().read())["image"]


def keep_busy(port, stack):
    """An open page, half an upload, a question and a slow calculation that take a minute; and clients that went away."""
    page, question = (stack.enter_context(closing(http.client.HTTPConnection("localhost", port))) for _ in range(2))
    white = upload(page, 255)
    page.request("POST", f"/api/jobs?run={NETWORK}&image={white}&method=rise")
    assert json.loads(page.getresponse().read())["state"] in ("waiting", "running")
    question.request("GET", f"/api/predict?run={NETWORK}&image={white}")
    half = f"POST /api/upload HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: 999\r\n\r\nabc".encode()
    stack.enter_context(socket.create_connection(("localhost", port))).sendall(half)
    for begun in (half, f"GET /api/info HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode()):
        with socket.create_connection(("localhost", port)) as client:
            client.sendall(begun)
    time.sleep(0.3)  # until all of it is under way


@pytest.mark.parametrize(("number", "is_busy"), [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGTERM, True)])
def test_it_ends_in_silence(number, is_busy):
    with serving(NETWORK, "--port", 0) as server, ExitStack() as stack:
        port = port_of(server)
        if is_busy:
            keep_busy(port, stack)
        server.send_signal(number)
        assert server.communicate(timeout=PATIENCE) == ("", "")
        assert server.returncode == 0
        listen("127.0.0.1", port).close()


def test_twice_in_a_row():
    with serving(NETWORK, "--port", 0) as server, ExitStack() as stack:
        port = port_of(server)
        keep_busy(port, stack)
        for _ in range(2):
            server.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert server.communicate(timeout=PATIENCE) == ("", "")
        assert server.returncode == 130
        listen("127.0.0.1", port).close()


def test_while_it_starts():
    with serving("tests.cli.networks:interrupted", "--port", 0) as server:
        assert server.communicate(timeout=PATIENCE) == ("", "")
        assert server.returncode == 130
