"""`bort serve`, as typed: it prints its address, answers, and is shut to others."""

import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from bort.app._listen import hosts, listen
from tests.train.small import RECIPE, fit


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that another process can load: with the network that its recipe names."""
    from bort import nets

    return fit(tmp_path_factory.mktemp("run") / "small", RECIPE, network=lambda recipe: nets.create("lenet")).path


def start(*arguments):
    command = [sys.executable, "-m", "bort", "serve", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_on_this_machine(run):
    with start(run, "--port", 0) as server:
        try:
            page = re.search(r"http://localhost:\d+/", server.stdout.readline())[0]
            with urllib.request.urlopen(page) as answer:
                assert b"bort <span>explorer" in answer.read()
            stranger = urllib.request.Request(page, headers={"Host": "evil.example"})
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(stranger)
        finally:
            server.terminate()


@pytest.mark.slow
def test_for_others_it_wants_a_token(run):
    with start(run, "--port", 0, "--address", "0.0.0.0") as server:
        try:
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
        finally:
            server.terminate()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--port", 99999), "port=99999: ports are 0 (any that is free) to 65535"),
        (("--port", -4), "port=-4: ports are"),
        (("--address", "no.such.host.invalid"), "address='no.such.host.invalid': "),
    ],
)
def test_places_where_nobody_can_listen(tmp_path, arguments, said):
    with start(tmp_path, *arguments) as server:
        assert f"bort serve: {said}" in server.communicate()[1]
    assert server.returncode == 1


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


def test_no_run(tmp_path):
    with start(tmp_path / "nowhere") as server:
        assert "bort serve: the run in" in server.communicate()[1]
    assert server.returncode == 1
