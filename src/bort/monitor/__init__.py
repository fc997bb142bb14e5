"""What the constraint does during a training, as numbers for any logger: in a plain loop, in Lightning
(:mod:`bort.monitor.lightning`, :mod:`bort.monitor.pytorch_lightning`) and in Hugging Face's Trainer
(:mod:`bort.monitor.huggingface`). Those three import their framework; this package needs torch alone."""

from bort.monitor._measure import measure
from bort.monitor._monitor import Monitor

__all__ = ["Monitor", "measure"]
