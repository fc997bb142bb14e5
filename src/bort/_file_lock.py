"""Locks between processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class InUse(RuntimeError):
    """Another process writes there now.

    Example:
        >>> from dataclasses import replace
        >>> recipe = replace(train.recipes.get("mnist5k-lenet-bort-s"), epochs=1, batch=1000)
        >>> def second(step):
        ...     if step == 1:
        ...         train.fit(recipe, "runs/first", train.Runtime(device="cpu"))
        >>> try:
        ...     train.fit(recipe, "runs/first", train.Runtime(device="cpu"), on_step=second)
        ... except train.InUse as error:
        ...     print(error)
        another run is writing into runs/first (process ...); wait for it, or choose another folder
    """


@contextmanager
def held(file: Path, refusal: str, advice: str = "") -> Iterator[None]:
    """Inside, this process holds the file. If another one does, InUse is raised with ``refusal``, who it is, and advice."""
    import fcntl

    with file.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released when its process ends, however it ends
        except BlockingIOError:
            lock.seek(0)
            raise InUse(f"{refusal} ({lock.read().strip() or 'just started'}){advice}") from None
        except OSError as error:
            raise OSError(error.errno, f"cannot lock {file}: {error.strerror}") from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {os.uname().nodename}")
        lock.flush()
        yield
