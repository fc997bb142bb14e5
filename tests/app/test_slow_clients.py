"""Clients that send slowly, stop in the middle or go away: they are closed, and nobody else waits for them."""

import json
import re
import socket
import time
import urllib.request

import numpy as np
import pytest

from bort.app._connections import Connection
from bort.app._slow_bodies import SlowBodies
from tests.app.test_uploads import file, gradient


@pytest.fixture
def _soon(monkeypatch):
    """The server's patience is a moment."""
    monkeypatch.setattr(Connection, "request_seconds", 0.3)
    monkeypatch.setattr(SlowBodies, "piece_seconds", 0.3)


@pytest.fixture
def connect(server):
    """A function: a connection that has sent something; reads time out long after the server's patience."""
    port = int(re.search(r":(\d+)/", server)[1])
    opened = []

    def connect(text):
        client = socket.create_connection(("localhost", port), timeout=20)
        opened.append(client)
        client.sendall(text.replace("HOST", f"localhost:{port}").encode())
        return client

    yield connect
    for client in opened:
        client.close()


def answer_of(client):
    """All that the server sends until it closes the connection."""
    received = b""
    while part := client.recv(65536):
        received += part
    return received


UPLOAD = "POST /api/upload HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5000\r\n\r\n"


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("begun", ["", "GET / HT", "GET / HTTP/1.1\r\nHost: HOST\r\nX-Slow: "])
def test_a_header_that_does_not_come(connect, begun):
    assert answer_of(connect(begun)) == b""


@pytest.mark.usefixtures("_soon")
def test_a_second_header_that_does_not_come(connect):
    client = connect("HEAD /app.css HTTP/1.1\r\nHost: HOST\r\n\r\n")
    assert client.recv(65536).startswith(b"HTTP/1.1 ")
    client.sendall(b"GET / HT")
    assert answer_of(client) == b""


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("sent", ["", "abc"])
def test_a_body_that_does_not_come(connect, sent):
    head, _, body = answer_of(connect(UPLOAD + sent)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert json.loads(body) == {"message": "The request came too slowly and was given up; try again."}
    assert b"default-src 'none'" in head


@pytest.mark.usefixtures("_soon")
def test_a_body_that_trickles(connect):
    """Byte by byte, each before the limit."""
    client = connect(UPLOAD)
    client.settimeout(0.05)
    received = b""
    for _ in range(200):
        try:
            client.sendall(b"x")
            received += client.recv(65536)
        except TimeoutError:
            continue
        except ConnectionError:
            pass
        break
    assert received.startswith(b"HTTP/1.1 408 ")


@pytest.mark.usefixtures("_soon")
def test_a_body_that_nobody_reads(connect):
    client = connect("HEAD /app.css HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5000\r\n\r\nabc")
    assert client.recv(65536).startswith(b"HTTP/1.1 ")
    client.sendall(b"d")
    assert answer_of(client) == b""


def test_a_body_in_time(connect):
    content = file(gradient("L"))
    client = connect(UPLOAD.replace("5000", str(len(content))).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"))
    client.sendall(content[:20])
    client.sendall(content[20:])
    assert b'"image":"upload-' in answer_of(client)


@pytest.mark.usefixtures("_soon")
def test_a_long_answer_is_no_slow_request(server, explorer, monkeypatch):
    """The limits are the client's, who has sent everything."""

    def strip():
        time.sleep(1)
        return np.zeros((1, 1, 3), np.uint8)

    monkeypatch.setattr(explorer.thumbnails, "strip", strip)
    with urllib.request.urlopen(server + "api/strip.png") as answer:
        assert answer.status == 200


def test_others_are_answered_meanwhile(server, connect):
    for begun in (UPLOAD + "abc", "GET / HT") * 20:
        connect(begun)
    with urllib.request.urlopen(urllib.request.Request(server + "api/upload", file(gradient("L")))) as answer:
        assert answer.status == 200
