"""What a training shows while it runs: a progress bar on a terminal, plain lines elsewhere. Failures of it are ignored."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

from bort._standard_output import redirect_to_null, rich_console
from bort.train._schema import Recipe

_BAR_SECONDS = 0.2  # between two updates of the progress bar
_LINE_SECONDS = 30.0  # between two plain lines


class PackingDisplay:
    """A context manager with ``update`` to call while the images of a folder are decoded."""

    def __init__(self, *, shown: bool = True) -> None:
        self._shown, self._console = shown, rich_console(highlight=False, soft_wrap=True)
        self._bar: Any = None
        self._task: Any = None
        self._last_shown = time.monotonic()

    def __enter__(self) -> PackingDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with contextlib.suppress(Exception):
                self._bar.stop()

    def update(self, done: int, total: int) -> None:
        """So many images of all have been decoded."""
        if not self._shown:
            return
        try:
            if self._console.is_terminal:
                self._show_bar(done, total)
            elif time.monotonic() - self._last_shown > _LINE_SECONDS:
                self._last_shown = time.monotonic()
                self._console.print(f"decoding images: {done:,} of {total:,}", markup=False)
        except Exception:  # the terminal or the pipe is closed
            self._shown = False

    def _show_bar(self, done: int, total: int) -> None:
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = TextColumn("decoding images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=total)
        self._bar.update(self._task, completed=done)


class TrainingDisplay:
    """A context manager with ``step`` and ``epoch`` to call. If the terminal or the pipe is closed, it shows nothing more."""

    def __init__(self, recipe: Recipe, per_epoch: int, *, shown: bool = True) -> None:
        self._name, self._epochs, self._batch = recipe.name, recipe.epochs, recipe.batch
        self._per_epoch = per_epoch
        self._console = rich_console(highlight=False, soft_wrap=True)
        self._silent = not shown
        self._bar: Any = None
        self._task: Any = None
        self._last_shown = self._started = time.monotonic()
        self._first_step: int | None = None
        self._last_test = ""

    def __enter__(self) -> TrainingDisplay:
        if not self._silent and self._console.is_terminal:
            self._try(self._start)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._try(self._bar.stop)

    def resumed(self, steps: int, *, is_complete: bool) -> None:
        """Before the first step: say what the run has done already."""
        if is_complete:
            self.say(f"{self._name}  is complete already: {self._epochs} epochs")
        elif steps:
            self.say(f"{self._name}  going on after step {steps} of {self._epochs * self._per_epoch}")

    def say(self, line: str) -> None:
        """Print a line."""
        self._try(lambda: self._console.print(line, markup=False))

    def step(self, step: int, loss: Callable[[], float]) -> None:
        """After a step (counted from 1). ``loss`` is called only when something is shown, since it waits for the device."""
        if self._first_step is None:
            self._first_step = step - 1
        now = time.monotonic()
        if self._silent or now - self._last_shown < (_BAR_SECONDS if self._bar is not None else _LINE_SECONDS):
            return
        epoch, within = divmod(step - 1, self._per_epoch)
        self._show(step, epoch + 1, loss(), f"  ({within + 1}/{self._per_epoch})")

    def epoch(self, record: dict[str, Any]) -> None:
        """After an epoch, with its record of history.jsonl."""
        self._last_test = f"  test {record['accuracy']:.2%}  residual {record['residual']:.3f}"
        if record["pull"]:
            self._last_test += f"  pull {record['pull']:.2f}"
        self._show(record["step"], record["epoch"], record["loss"])

    def _show(self, step: int, epoch: int, loss: float, position: str = "") -> None:
        """Update the progress bar; without one, print a line, with the position in the epoch at its end."""
        self._last_shown = time.monotonic()
        text = f"epoch {epoch}/{self._epochs}  loss {loss:.4f}{self._last_test}  {self._speed(step)}"
        if self._bar is not None:
            self._try(lambda: self._bar.update(self._task, completed=step, text=text, refresh=True))
        else:
            self.say(f"{self._name}  {text}{position}")

    def _speed(self, step: int) -> str:
        done = step - (self._first_step or 0)
        per_step = (time.monotonic() - self._started) / max(1, done)
        seconds = int(per_step * max(0, self._epochs * self._per_epoch - step))
        days, hours = f"{seconds // 86400} d " if seconds >= 86400 else "", seconds % 86400 // 3600
        return f"{self._batch / per_step:,.0f} images/s  ETA {days}{hours:02d}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"

    def _start(self) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        # No refreshing thread: when the terminal is closed, it would end with a traceback that nobody can catch.
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[text]}"))
        self._bar = Bar(*columns, console=self._console, auto_refresh=False, transient=True)
        self._task = self._bar.add_task(self._name, total=self._epochs * self._per_epoch, text="starting …")
        self._bar.start()

    def _try(self, show: Callable[[], Any]) -> None:
        if self._silent:
            return
        try:
            show()
            sys.stdout.flush()
        except UnicodeEncodeError:
            return  # the terminal cannot show these characters: leave the line out
        except (OSError, ValueError):  # the pipe, terminal or file has been closed
            self._silent = True
            self._bar = None
            redirect_to_null()
