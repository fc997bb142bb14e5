"""When a training is saved or stopped, and how it goes on from a checkpoint."""

from __future__ import annotations

import time
import warnings
from typing import NoReturn

from bort.train import _checkpoint, _state
from bort.train._assemble import Parts
from bort.train._counters import Counters
from bort.train._file_feed import FileFeed
from bort.train._nonfinite import FiniteCheck, check_weights
from bort.train._run_folder import RunFolder, StartedDifferently
from bort.train._runtime import Runtime
from bort.train._schema import Recipe
from bort.train._signals import Interrupted, StopRequest
from bort.train._world import World

_AGREE_STEPS = 16  # with several processes: how often they exchange whether one of them is to stop or to save


class Saver:
    """Saves checkpoints, on time and on request, and resumes from the newest one."""

    def __init__(
        self,
        recipe: Recipe,
        runtime: Runtime,
        world: World,
        folder: RunFolder,
        request: StopRequest,
        parts: Parts,
        counters: Counters,
        finite: FiniteCheck,
    ) -> None:
        self._recipe, self._runtime, self._world, self._folder, self._request = recipe, runtime, world, folder, request
        self._parts, self._counters, self._finite = parts, counters, finite
        self._saved_at = (-1, -1)  # steps and epochs of the newest checkpoint
        self._last_save = time.monotonic()

    def after_step(self) -> None:
        """Save if it is time, and stop if a signal has come."""
        self._save_or_stop(processes_agree=self._counters.steps % self._agree_steps() == 0)

    def after_epoch(self) -> None:
        """The same when the epoch has been recorded."""
        self._save_or_stop(processes_agree=True)

    def after_test_batch(self) -> None:
        """Stop in the middle of a test. Several processes do not: they would have to agree after each batch."""
        if self._world.size == 1 and self._request:
            self._stop()

    def save(self, *, keep: int | None = None) -> None:
        """Write a checkpoint. All processes have to call this together; the first one writes."""
        self._finite.now()
        check_weights(self._parts.net, f"step {self._counters.steps}")
        self._world.share_buffers(self._parts.net)
        counters = self._counters.state_dict()
        state = _state.capture(self._parts.net, self._parts.optimizer, self._world, sharded=self._parts.sharded)
        state |= counters
        state |= {"optim": self._optimizer_kind(), "fingerprint": self._parts.data.fingerprint}
        if self._world.is_first:
            self._folder.require()
            _checkpoint.save(self._folder.checkpoints, self._counters.steps, state, keep or self._runtime.keep)
        self._last_save = time.monotonic()
        self._saved_at = self._position()

    def save_unless_saved(self) -> None:
        """Write a checkpoint unless the newest one is of this step and epoch."""
        if self._saved_at != self._position():
            self.save()

    def resume(self, *, force: bool) -> None:
        """Go on from the newest undamaged checkpoint, if there is one. Other data is refused unless forced."""
        folder, counters, parts = self._folder, self._counters, self._parts
        checkpoint = self._newest()
        if checkpoint is None:
            return
        state, fingerprint = checkpoint.state, parts.data.fingerprint
        if state["fingerprint"] != fingerprint and not force:
            raise StartedDifferently(
                f"{self._recipe.data.name} is not the data that the run in {folder.path} was started with (SHA-256 "
                f"{fingerprint[:12]}…, it was {state['fingerprint'][:12]}…)",
                "Bring the old data back, choose another folder, or go on with the new data: force=True",
            )
        same_optimizer = state["optim"] == self._optimizer_kind()
        if not same_optimizer:
            warnings.warn("forced to another optimizer: its moments begin at 0", stacklevel=4)
        _state.restore(state, parts.net, parts.optimizer, self._world, sharded=parts.sharded, moments=same_optimizer)
        counters.load_state_dict(state)
        if state["per_epoch"] != parts.feed.per_epoch:
            warnings.warn("forced to another length of an epoch: the one under way begins again", stacklevel=4)
            counters.restart_epoch()
            # Steps are numbered anew: an older checkpoint with a larger number would count as a newer one.
            self.save(keep=1)
        self._saved_at = self._position()
        if self._world.is_first:
            folder.history.keep(counters.epochs)

    def _newest(self) -> _checkpoint.Checkpoint | None:
        """The checkpoint that the first process finds, read by all; None for a training that begins."""
        checkpoint, folder = None, self._folder
        if self._world.is_first:
            checkpoint = _checkpoint.load(folder.checkpoints)
            if checkpoint is not None:
                _checkpoint.set_aside(folder.checkpoints, checkpoint.path)
            else:
                if folder.history.read():
                    warnings.warn(f"{folder.path} has a history but no checkpoint: it begins again", stacklevel=5)
                folder.history.keep(0)
        path = self._world.from_first(checkpoint.path if checkpoint is not None else None)
        return checkpoint if path is None or checkpoint is not None else _checkpoint.read(path)

    def _save_or_stop(self, *, processes_agree: bool) -> None:
        steps, save_steps = self._counters.steps, self._runtime.save_steps
        # The last step of an epoch is saved after the epoch's test, with its record.
        ends_epoch = self._counters.step_in_epoch == self._parts.feed.per_epoch
        is_due = save_steps is not None and steps % save_steps == 0 and not ends_epoch
        is_late = time.monotonic() - self._last_save > self._runtime.save_seconds
        is_asked = bool(self._request)
        if self._world.size > 1:
            if not is_due and not processes_agree:
                return
            is_late, is_asked = self._world.any(is_late), self._world.any(is_asked)
        if is_asked:
            self._stop()
        if is_due or is_late:
            self.save()

    def _stop(self) -> NoReturn:
        self.save_unless_saved()
        raise Interrupted(self._request.signal_number, self._counters.steps, self._folder.checkpoints)

    def _agree_steps(self) -> int:
        """Steps on images from files take so long that an exchange after each of them costs nothing."""
        return 1 if isinstance(self._parts.feed, FileFeed) else _AGREE_STEPS

    def _position(self) -> tuple[int, int]:
        return self._counters.steps, self._counters.epochs

    def _optimizer_kind(self) -> list[str]:
        """What the moments in a checkpoint belong to."""
        return [self._recipe.optim.name, self._recipe.optim.groups]
