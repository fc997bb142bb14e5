"""`bort serve` in a process of its own."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(*arguments):
    """The process, which finds the tests' networks by their import paths; it is killed in the end if it still runs."""
    command = [sys.executable, "-m", "bort", "serve", *map(str, arguments)]
    folders = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as server:
        try:
            yield server
        finally:
            server.kill()


def port_of(server):
    """The port that it prints when it listens."""
    return int(re.search(r"http://localhost:(\d+)/", server.stdout.readline())[1])
