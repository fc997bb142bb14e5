"""`bort serve`, as typed: it prints its address, answers, and is shut to others."""

import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

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
            address, token = re.search(r"http://0\.0\.0\.0:(\d+)/\?token=(\S+)", server.stdout.readline()).groups()
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(f"http://127.0.0.1:{address}/api/info")
            with urllib.request.urlopen(f"http://127.0.0.1:{address}/api/info?token={token}") as answer:
                assert answer.status == 200
        finally:
            server.terminate()


def test_no_run(tmp_path):
    with start(tmp_path / "nowhere") as server:
        assert "bort serve: the run in" in server.communicate()[1]
    assert server.returncode == 1
