"""Little of everything, so that a report takes seconds."""

from bort.report import SampleSizes

SMALL = SampleSizes(shown=3, measured=12, evaluated=3, masks=20, features=8, pairs=12)
