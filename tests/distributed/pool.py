"""A few processes that stay, joined by gloo, and run functions of these modules together: starting them takes seconds."""

import importlib
import tempfile
import traceback
from multiprocessing import connection

from tests.forked import context

_SECONDS = 100


class Pool:
    def __init__(self, size):
        self.size = size
        self._folder = tempfile.TemporaryDirectory(prefix="bort-pool-")
        meeting = f"{self._folder.name}/meeting"
        pipes = [context.Pipe() for _ in range(size)]
        self._pipes = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=_work, args=(rank, size, meeting, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process in self._processes:
            process.start()

    def run(self, check, /, **arguments):
        """What the function returned on each rank. An exception on any, or silence, ends the pool and is raised here."""
        for pipe in self._pipes:
            pipe.send((check, arguments))
        results = {}
        while len(results) < self.size:
            ready = connection.wait([p for rank, p in enumerate(self._pipes) if rank not in results], timeout=_SECONDS)
            if not ready:
                self.close()
                raise TimeoutError(f"{check} on {self.size} ranks: only {sorted(results)} answered in {_SECONDS} s")
            for pipe in ready:
                good, result = pipe.recv()
                if not good:
                    self.close()
                    raise AssertionError(f"{check}({arguments}) on rank {self._pipes.index(pipe)}:\n{result}")
                results[self._pipes.index(pipe)] = result
        return [results[rank] for rank in range(self.size)]

    @property
    def alive(self):
        return all(process.is_alive() for process in self._processes)

    def close(self):
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()


def _work(rank, size, meeting, pipe):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    checks = {}
    for module in ("layouts", "monitoring", "sharing", "training"):
        checks |= vars(importlib.import_module(f"tests.distributed.{module}"))
    while True:
        name, arguments = pipe.recv()
        try:
            pipe.send((True, checks[name](**arguments)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
