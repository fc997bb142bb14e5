"""The hooks of a Lightning callback, without the base class: `lightning.pytorch` and `pytorch_lightning` are two packages,
each with a ``Callback``, and a Trainer takes its own only."""

from __future__ import annotations

from typing import Any

import torch

from bort.monitor._monitor import Monitor
from bort.monitor._sources import unwrapped_optimizer
from bort.optim import Bort


class LightningHooks:
    """Logs :func:`bort.monitor.measure` and the pull so far to all loggers of the Trainer.

    They are measured before the first batch, every ``every`` steps and at the end; steps are those of the Trainer's own logs,
    batches after which the optimizers stepped. The numbers are also in ``trainer.callback_metrics``, for callbacks that
    look at one. With several Bort optimizers the names begin with PREFIX/INDEX, the optimizer's place in
    ``trainer.optimizers``. All ranks measure, rank 0 logs. Checkpoints carry the pull.

    Args:
        every: steps between two measurements.
        layers, prefix: as for :func:`bort.monitor.measure`.
        source: a model or param groups to measure instead of the Trainer's optimizers, for a training without Bort.

    Example:
        >>> from bort.monitor.lightning import LightningMonitor
        >>> LightningMonitor(every=50, layers=True).every  # for Trainer(callbacks=[…])
        50
    """

    def __init__(self, every: int = 100, *, layers: bool = False, prefix: str = "bort", source: Any = None) -> None:
        Monitor(every)  # refuses what cannot be
        self.every = every
        self.layers = layers
        self.prefix = prefix
        self.source = source
        self._monitors: list[tuple[Any, Monitor]] = []
        self._saved: list[dict[str, Any]] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._stop()
        sources = [self.source] if self.source is not None else trainer.optimizers
        constrained = [i for i, source in enumerate(sources) if isinstance(unwrapped_optimizer(source), Bort)]
        for index in constrained or range(min(1, len(sources))):  # if there is none, the first one says so
            prefix = f"{self.prefix}/{index}" if len(constrained) > 1 else self.prefix
            monitor = Monitor(self.every, layers=self.layers, model=pl_module, prefix=prefix)
            monitor.watch(sources[index])
            self._monitors.append((sources[index], monitor))
        if _step(trainer):  # not a new training with the callback of an old one
            for (_, monitor), state in zip(self._monitors, self._saved, strict=False):
                monitor.load_state_dict(state)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        step = _step(trainer)
        for source, monitor in self._monitors:
            _log(trainer, monitor(source, step), step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        step = _step(trainer)
        for source, monitor in self._monitors:
            _log(trainer, monitor.record(source, step), step)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._stop()

    def state_dict(self) -> dict[str, Any]:
        current = [monitor.state_dict() for _, monitor in self._monitors]
        return {"monitors": current or self._saved}  # a checkpoint may be saved after the training

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._stop()
        self._saved = state_dict["monitors"]  # the optimizers are there later

    def _stop(self) -> None:
        self._saved = self.state_dict()["monitors"]
        for _, monitor in self._monitors:
            monitor.stop()
        self._monitors = []


def _step(trainer: Any) -> int:
    """The step that Lightning's own logs have."""
    step: int = trainer.fit_loop.epoch_loop._batches_that_stepped
    return step


def _log(trainer: Any, values: dict[str, float], step: int) -> None:
    if not values:
        return
    # Not by pl_module.log_dict: it drops what does not fall on a multiple of log_every_n_steps.
    for logger in trainer.loggers:
        logger.log_metrics(values, step=step)
    trainer.callback_metrics.update({name: torch.tensor(value) for name, value in values.items()})
