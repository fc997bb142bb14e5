"""How far a training has come, and the sums over the epoch under way."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch

from bort.train._feed import Batch, Feed
from bort.train._step import Step
from bort.train._world import World


class Totals(NamedTuple):
    """Sums over the images of all processes, since the epoch began; ``skipped`` since the training began."""

    loss_sum: float
    images: float
    skipped: float


class Counters:
    """Counts steps, epochs, images and seconds; `state_dict` is what a checkpoint holds of them.

    The sum of the losses grows on the device, inside the step, and images that cannot be read are counted by the feed; both
    are read from there.
    """

    def __init__(self, step: Step, feed: Feed, world: World) -> None:
        self._step, self._feed, self._world = step, feed, world
        self.steps = 0
        """Made so far, in all epochs."""
        self.first_step = 0
        """How many of them were made before this process started."""
        self.epochs = 0
        """Trained, tested and recorded in the history."""
        self.images = 0
        """Of this process, in the epoch under way."""
        self._earlier_seconds, self._started = 0.0, time.monotonic()

    def after_step(self, batch: Batch) -> None:
        self.steps += 1
        self.images += batch.count
        self._feed.skipped += batch.skipped

    def after_epoch(self) -> None:
        self.epochs += 1
        self._clear_sums()

    @property
    def step_in_epoch(self) -> int:
        return self.steps - self.epochs * self._feed.per_epoch

    @property
    def seconds(self) -> float:
        """Since the training began, without the time between an interruption and the next start."""
        return self._earlier_seconds + time.monotonic() - self._started

    def mean_loss(self) -> float:
        """Of this process, in the epoch under way; waits for the device."""
        return self._step.loss_sum.item() / max(1, self.images)

    def totals(self) -> Totals:
        """Sums over all processes, which have to call this together."""
        own = [self._step.loss_sum.item(), float(self.images), float(self._feed.skipped)]
        if self._world.size == 1:
            return Totals(*own)
        return Totals(*self._world.total(torch.tensor(own, dtype=torch.float64, device=self._world.device)).tolist())

    def state_dict(self) -> dict[str, Any]:
        """All processes have to call this together."""
        totals = self.totals()
        return {
            "steps": self.steps,
            "recorded": self.epochs,
            "images": round(totals.images),
            "loss_sum": totals.loss_sum,
            "skipped": round(totals.skipped),
            "seconds": self.seconds,
            "per_epoch": self._feed.per_epoch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = self.first_step = state["steps"]
        self.epochs, self._earlier_seconds = state["recorded"], state["seconds"]
        if self._world.is_first:  # it takes the sums over all processes, the others begin at 0
            self.images, self._feed.skipped = state["images"], state["skipped"]
            self._step.loss_sum.fill_(state["loss_sum"])

    def restart_epoch(self) -> None:
        """Go back to the end of the last recorded epoch, with steps numbered by the feed's length of an epoch."""
        self.steps = self.first_step = self.epochs * self._feed.per_epoch
        self._clear_sums()

    def _clear_sums(self) -> None:
        self.images = 0
        self._step.loss_sum.zero_()
