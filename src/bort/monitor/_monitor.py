"""A measurement every so many steps, for loops of one's own and for the callbacks of frameworks."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn

from bort.monitor._measure import values_of
from bort.monitor._pull import PullCount
from bort.monitor._sources import constrained_weights, unwrapped_optimizer
from bort.optim import Bort


class Monitor:
    """:func:`bort.monitor.measure` every ``every`` steps, and the pull so far, PREFIX/pull.

    .. code-block:: python

        monitor = bort.monitor.Monitor(every=100, to=writer)      # a SummaryWriter, wandb.log, mlflow.log_metrics, …
        for step, (x, y) in enumerate(loader):
            monitor(optimizer, step)                              # what ``step`` steps have made of the weights
            ...
            optimizer.step()

    The pull (:func:`bort.constraint_for`) is that of the optimizer's steps since the monitor saw it first, the smallest over
    its param groups. It is left out where it does not exist: for a model, and for a penalty that is coupled to another
    optimizer than SGD.

    Args:
        every: steps between two measurements.
        layers, model, prefix: as for :func:`bort.monitor.measure`.
        to: where the numbers go: an object with ``add_scalar(name, value, step)``, or a function of (values, step).

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> _ = nn.init.orthogonal_(model[0].weight)
        >>> optimizer = bort.BortS(bort.param_groups(model, 0.1, exclude=("2.*",)), lr=0.1)
        >>> watch = monitor.Monitor(every=2)
        >>> for step in range(5):
        ...     values = watch(optimizer, step)  # empty at every other step
        ...     print(step, round(values["bort/pull"], 6) if values else "-")  # λ · Σ lr so far
        ...     _ = model(torch.ones(1, 4)).sum().backward()
        ...     optimizer.step()
        0 0.0
        1 -
        2 0.02
        3 -
        4 0.04
    """

    def __init__(
        self,
        every: int = 100,
        *,
        layers: bool = False,
        model: nn.Module | None = None,
        prefix: str = "bort",
        to: Any = None,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every={every!r}: must be a whole number ≥ 1, the steps between two measurements")
        if to is not None and not callable(to) and not hasattr(to, "add_scalar"):
            raise TypeError(
                f"to={to!r}: give an object with add_scalar (a SummaryWriter) or a function of (values, step)"
            )
        self.every = every
        self.layers = layers
        self.model = model
        self.prefix = prefix
        self.to = to
        self._pull: PullCount | None = None
        self._pull_before = 0.0
        self._measured_at: int | None = None
        self._has_warned = False

    def __call__(self, source: Any, step: int) -> dict[str, float]:
        """The numbers of ``source`` (an optimizer, a model or param groups) if it is time for them, otherwise nothing. A step
        that is met several times, since gradients are accumulated, is measured once."""
        self.watch(source)
        return {} if step % self.every else self.record(source, step)

    def record(self, source: Any, step: int) -> dict[str, float]:
        """Measure now, unless this step has been measured, and write the numbers to ``to``."""
        if step == self._measured_at:
            return {}
        self.watch(source)
        self._measured_at = step
        weights, problem = constrained_weights(source, self.model)
        if problem is not None:
            if not self._has_warned:
                warnings.warn(f"bort.monitor measures nothing: {problem}", stacklevel=3)
            self._has_warned = True
            return {}
        values = values_of(weights, layers=self.layers, prefix=self.prefix)
        pull = None if self._pull is None else self._pull.read()
        if pull is not None:
            values[f"{self.prefix}/pull"] = pull
        if hasattr(self.to, "add_scalar"):
            for name, value in values.items():
                self.to.add_scalar(name, value, step)
        elif self.to is not None:
            self.to(dict(values), step)
        return values

    def watch(self, source: Any) -> None:
        """Count the pull of an optimizer from now on. The first call of the monitor does it as well."""
        optimizer = None if isinstance(source, nn.Module) else unwrapped_optimizer(source)
        if not isinstance(optimizer, Bort) or (self._pull is not None and self._pull.optimizer is optimizer):
            return
        if self._pull is not None and self._pull.optimizer is not None:
            raise ValueError(
                f"this monitor watches another {type(self._pull.optimizer).__name__}: give each optimizer a Monitor with a "
                "prefix of its own, or call monitor.stop() if one takes the place of the other"
            )
        self.stop()
        self._pull = PullCount(optimizer, self._pull_before)

    def stop(self) -> None:
        """Remove what the monitor has attached to an optimizer. The pull so far stays counted."""
        self._pull_before = self.state_dict()["pull"]
        if self._pull is not None:
            self._pull.stop()
        self._pull = None

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint: the pull so far."""
        pull = None if self._pull is None else self._pull.read()
        return {"pull": self._pull_before if pull is None else pull}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting from a checkpoint."""
        self._pull_before = float(state["pull"])
        if self._pull is not None:
            self._pull.restart(self._pull_before)
