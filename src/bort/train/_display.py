"""What a person sees of a training: a line that moves on a terminal, plain lines elsewhere. It never stops the training."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

_REFRESH_S = 0.2
_PLAIN_S = 30.0


class Progress:
    """Enter it, call ``step`` and ``epoch``; if the terminal goes away, it falls silent."""

    def __init__(self, name: str, epochs: int, per_epoch: int, batch: int, *, shown: bool = True) -> None:
        self._name, self._epochs, self._per_epoch, self._batch = name, epochs, per_epoch, batch
        self._console = _console()
        self._silent = not shown
        self._bar: Any = None
        self._task: Any = None
        self._last = self._begun = time.monotonic()
        self._first_step: int | None = None
        self._note = ""

    def __enter__(self) -> Progress:
        if not self._silent and self._console.is_terminal:
            self._try(self._start)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._try(self._bar.stop)

    def say(self, line: str) -> None:
        """A line that stays."""
        self._try(lambda: self._console.print(line, markup=False))

    def step(self, step: int, loss: Callable[[], float]) -> None:
        """After a step (counted from 1). ``loss`` is asked for only when something is shown: it waits for the device."""
        if self._first_step is None:
            self._first_step = step - 1
        now = time.monotonic()
        if self._silent or now - self._last < (_REFRESH_S if self._bar is not None else _PLAIN_S):
            return
        self._last = now
        epoch, within = divmod(step - 1, self._per_epoch)
        words = f"epoch {epoch + 1}/{self._epochs}  loss {loss():.4f}{self._note}  {self._speed(step)}"
        if self._bar is not None:
            self._try(lambda: self._bar.update(self._task, completed=step, words=words, refresh=True))
        else:
            self.say(f"{self._name}  {words}  ({within + 1}/{self._per_epoch})")

    def epoch(self, record: dict[str, Any]) -> None:
        """After an epoch: what history.jsonl has of it."""
        self._last = time.monotonic()
        self._note = f"  test {record['accuracy']:.2%}  residual {record['residual']:.3f}"
        loss, speed = record["loss"], self._speed(record["step"])
        words = f"epoch {record['epoch']}/{self._epochs}  loss {loss:.4f}{self._note}  {speed}"
        if self._bar is not None:
            self._try(lambda: self._bar.update(self._task, completed=record["step"], words=words, refresh=True))
        else:
            self.say(f"{self._name}  {words}")

    def _speed(self, step: int) -> str:
        done = step - (self._first_step or 0)
        per_step = (time.monotonic() - self._begun) / max(1, done)
        seconds = int(per_step * max(0, self._epochs * self._per_epoch - step))
        days, hours = f"{seconds // 86400} d " if seconds >= 86400 else "", seconds % 86400 // 3600
        return f"{self._batch / per_step:,.0f} images/s  ETA {days}{hours:02d}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"

    def _start(self) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        # Refreshed by hand: a thread of rich's own would die noisily with the terminal.
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[words]}"))
        self._bar = Bar(*columns, console=self._console, auto_refresh=False, transient=True)
        self._task = self._bar.add_task(self._name, total=self._epochs * self._per_epoch, words="starting …")
        self._bar.start()

    def _try(self, show: Callable[[], Any]) -> None:
        if self._silent:
            return
        try:
            show()
            sys.stdout.flush()
        except UnicodeEncodeError:
            return  # a terminal without these signs misses a line
        except (OSError, ValueError):  # closed pipe, vanished terminal, closed file
            self._silent = True
            self._bar = None
            _to_nowhere()


def _console() -> Any:
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process

    return Plain(highlight=False, soft_wrap=True)


def _to_nowhere() -> None:
    """Python itself writes to the standard output at exit, and would end with an error if it is gone."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        pass  # a stream without a file behind it: nothing to turn
