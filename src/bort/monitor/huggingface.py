"""For trainings with Hugging Face's Trainer: ``trainer.add_callback(TrainerMonitor(trainer, every=100))``."""

from __future__ import annotations

from typing import Any

from bort.monitor._monitor import Monitor

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError("bort.monitor.huggingface needs transformers: pip install transformers") from error

__all__ = ["TrainerMonitor"]


class TrainerMonitor(TrainerCallback):  # type: ignore[misc]
    """Logs :func:`bort.monitor.measure` and the pull so far by ``trainer.log``: into ``state.log_history``, and to all that
    ``report_to`` names.

    The numbers are measured before the first step, every ``every`` steps, at checkpoints and at the end. All ranks measure.
    A training that goes on from a checkpoint takes the pull from its log history.

    Args:
        trainer: the Trainer, since callbacks are not given it.
        every: steps of the optimizer between two measurements.
        layers, prefix: as for :func:`bort.monitor.measure`.
        source: a model or param groups to measure instead of the Trainer's optimizer, for a training without Bort.

    Example:
        >>> from bort.monitor.huggingface import TrainerMonitor
        >>> TrainerMonitor("not a trainer")
        Traceback (most recent call last):
        TypeError: trainer='not a trainer': give the Trainer, trainer.add_callback(TrainerMonitor(trainer, every=100))
    """

    def __init__(
        self, trainer: Any, every: int = 100, *, layers: bool = False, prefix: str = "bort", source: Any = None
    ) -> None:
        if not hasattr(trainer, "log"):
            raise TypeError(
                f"trainer={trainer!r}: give the Trainer, trainer.add_callback(TrainerMonitor(trainer, every={every}))"
            )
        self.trainer = trainer
        self.source = source
        self._monitor = Monitor(every, layers=layers, prefix=prefix)

    def on_train_begin(self, args: Any, state: Any, control: Any, **training: Any) -> None:
        self._monitor.stop()
        before = [logs for logs in state.log_history if f"{self._monitor.prefix}/pull" in logs]
        self._monitor = Monitor(
            self._monitor.every, layers=self._monitor.layers, model=training["model"], prefix=self._monitor.prefix
        )
        if before:
            self._monitor.load_state_dict({"pull": before[-1][f"{self._monitor.prefix}/pull"]})
        self._log(self._monitor(self._source(training), state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, **training: Any) -> None:
        if control.should_save or control.should_training_stop:
            self._log(self._monitor.record(self._source(training), state.global_step))
        else:
            self._log(self._monitor(self._source(training), state.global_step))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **training: Any) -> None:
        if control.should_save or control.should_training_stop:
            self._log(self._monitor.record(self._source(training), state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, **training: Any) -> None:
        self._monitor.stop()

    def _source(self, training: dict[str, Any]) -> Any:
        return training["optimizer"] if self.source is None else self.source

    def _log(self, values: dict[str, float]) -> None:
        if values:
            self.trainer.log(dict(values))
