"""What a person looks at: figures, tables and pages about networks."""

from bort._sample_sizes import SampleSizes
from bort.measure import curves
from bort.report._figures import FIGURES, draw, resolve
from bort.report._illustration import Illustration
from bort.report._measured import Measured, measured
from bort.report._report import Report, make, write
from bort.report._verdict import Comparison, Estimate, Verdict
from bort.subject import Missing

__all__ = [
    "FIGURES",
    "Comparison",
    "Estimate",
    "Illustration",
    "Measured",
    "Missing",
    "Report",
    "SampleSizes",
    "Verdict",
    "curves",
    "draw",
    "make",
    "measured",
    "resolve",
    "write",
]

_MOVED = {
    "Amount": "bort.report.SampleSizes",
    "Subject": "bort.subject.Subject",
    "subjects": "bort.subject.resolve_all(folders)",
}


def __getattr__(name: str) -> None:
    if name in _MOVED:  # an ImportError: of an AttributeError `from bort.report import …` would not show the message
        raise ImportError(f"bort.report.{name} of version 0.1.0 is now {_MOVED[name]}", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
