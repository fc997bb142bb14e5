"""What a person looks at: pictures, figures and pages out of runs."""

from bort._sample_sizes import SampleSizes
from bort.report._figures import FIGURES, draw, resolve
from bort.report._illustration import Illustration
from bort.report._page import Report
from bort.report._page import report as make
from bort.report._subject import Missing, Subject, subjects

__all__ = ["FIGURES", "SampleSizes", "Illustration", "Missing", "Report", "Subject", "draw", "make", "resolve", "subjects"]
