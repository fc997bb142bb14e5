"""`bort serve`: it prints its address, answers, and refuses others."""

import re
import socket
import urllib.error
import urllib.request

import pytest

from bort import app
from bort.app._listen import hosts, listen
from tests.cli.servers import serving


@pytest.mark.slow
def test_on_this_machine(run):
    with serving(run.path, "--port", 0) as server:
        page = re.search(r"http://localhost:\d+/", server.stdout.readline())[0]
        with urllib.request.urlopen(page) as answer:
            assert b"bort <span>explorer" in answer.read()
        stranger = urllib.request.Request(page, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(stranger)


@pytest.mark.slow
def test_for_others_it_wants_a_token(run):
    with serving(run.path, "--port", 0, "--address", "0.0.0.0") as server:
        assert "Everybody who reaches 0.0.0.0" in server.stdout.readline()
        printed = server.stdout.readline()
        port, token = re.search(r"http://\S+:(\d+)/\?token=(\S+)", printed).groups()
        assert "0.0.0.0" not in printed, "an address that can be opened"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/info")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/info?token={token}") as answer:
            assert answer.status == 200
        with urllib.request.urlopen(printed.split()[0]) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", 99999), r"port=99999: ports are 0 \(any that is free\) to 65535"),
        (("--port", -4), "port=-4: ports are"),
        (("--address", "no.such.host.invalid"), r"address='no\.such\.host\.invalid': "),
    ],
)
def test_places_where_nobody_can_listen(bort, tmp_path, arguments, message):
    with pytest.raises(SystemExit, match=f"bort serve: {message}"):
        bort("serve", tmp_path, *arguments)


def test_names():
    assert hosts("127.0.0.1", 8765)[0] == "localhost:8765"
    assert "[::1]:8765" in hosts("::1", 8765)
    assert {"localhost:80", "localhost"} <= set(hosts("127.0.0.1", 80)), "browsers leave port 80 out"
    assert hosts("192.0.2.7", 8765)[0] == "192.0.2.7:8765"
    assert not any(name.startswith(("0.0.0.0", "[::]")) for name in hosts("0.0.0.0", 8765))


def test_a_port_in_use():
    with listen("127.0.0.1", 0) as first:
        assert first.proto == socket.IPPROTO_TCP, "or each answer waits for Nagle"
        with pytest.raises(OSError, match=r"cannot listen at 127\.0\.0\.1, port"):
            listen("127.0.0.1", first.getsockname()[1])


def test_a_port_in_use_is_said_before_networks_are_read():
    def subjects():
        pytest.fail("read")

    with listen("127.0.0.1", 0) as first, pytest.raises(OSError, match="cannot listen at"):
        app.serve(subjects, port=first.getsockname()[1])


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("nowhere", "'nowhere' is neither the folder of a run nor a network"),
        ("lenet", "it is not known how lenet sees an image"),
    ],
)
def test_what_cannot_be_opened(bort, what, message):
    with pytest.raises(SystemExit, match=f"bort serve: {message}"):
        bort("serve", what, "--port", 0)
