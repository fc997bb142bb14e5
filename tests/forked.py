"""Python programs in processes of their own that start at once.

A process that imports torch and what a training needs of it has used a core for five seconds before it begins. These are
forked off one that has imported all of it. They are processes like others: they have an environment and streams of their own,
and are signalled and killed.
"""

import multiprocessing
import os
import runpy
import socket
import sys
import time
from multiprocessing.reduction import DupFd
from pathlib import Path

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    ["torch._dynamo", "torch.distributed.fsdp", "bort.train", "bort.nets", "tests.train.small"]
)


class Program:
    """The Python program in a file, begun. What it prints is in ``output`` and ``errors``."""

    def __init__(self, file, *arguments, folder, environment=None):
        self.output, self.errors = (Path(folder) / f"{Path(file).name}.{name}" for name in ("output", "errors"))
        streams = [path.open("ab") for path in (self.output, self.errors)]
        self._process = context.Process(
            target=_run,
            args=(str(file), [*map(str, arguments)], environment or {}, [DupFd(stream.fileno()) for stream in streams]),
        )
        self._process.start()
        for stream in streams:
            stream.close()

    def send_signal(self, number):
        os.kill(self._process.pid, number)

    def wait(self, seconds=100):
        """Its exit status. If it does not end in time it is killed, and that is an error."""
        self._process.join(seconds)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
            raise TimeoutError(f"it did not end in {seconds} s; it printed {self.errors.read_text()[-2000:]}")
        return self._process.exitcode

    @property
    def status(self):
        """Its exit status; None while it runs."""
        return self._process.exitcode


def _run(file, arguments, environment, streams):
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream.detach(), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, encoding="utf-8", closefd=False) for number in (1, 2))
    os.environ.update(environment)
    sys.argv = [file, *arguments]
    runpy.run_path(file, run_name="__main__")


class Ranks:
    """The program on several ranks, as torchrun starts it; but torchrun ends all when one fails, and here each has to."""

    def __init__(self, count, file, *arguments, folder):
        world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(count)}
        world |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        self.programs = [
            Program(file, *arguments, folder=folder, environment=world | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(count)
        ]

    def wait(self, seconds=100):
        """The exit status of each."""
        end = time.monotonic() + seconds
        return [program.wait(max(0.1, end - time.monotonic())) for program in self.programs]

    @property
    def output(self):
        """What all have printed."""
        return self.programs[0].output.read_text()

    @property
    def errors(self):
        return self.programs[0].errors.read_text()


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
