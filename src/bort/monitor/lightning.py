"""For trainings with ``lightning.pytorch``: ``Trainer(callbacks=[LightningMonitor(every=100)])``."""

from bort.monitor._lightning import LightningHooks

try:
    from lightning.pytorch import Callback
except ImportError as error:
    raise ImportError("bort.monitor.lightning needs Lightning: pip install lightning") from error

__all__ = ["LightningMonitor"]


class LightningMonitor(LightningHooks, Callback):  # type: ignore[misc]
    __doc__ = LightningHooks.__doc__
