"""For trainings with ``pytorch_lightning``, the older package: ``Trainer(callbacks=[LightningMonitor(every=100)])``."""

from bort.monitor._lightning import LightningHooks

try:
    from pytorch_lightning import Callback
except ImportError as error:
    raise ImportError(
        "bort.monitor.pytorch_lightning needs pytorch_lightning: pip install pytorch-lightning"
    ) from error

__all__ = ["LightningMonitor"]


class LightningMonitor(LightningHooks, Callback):  # type: ignore[misc]
    __doc__ = LightningHooks.__doc__
