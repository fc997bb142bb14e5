"""The paper's tables and figures, run again: one JSON a result, and RESULTS.md out of them."""

from bort.reproduce._charts import write as charts
from bort.reproduce._markdown import results
from bort.reproduce._plan import PLANS, Job, reproduce

__all__ = ["PLANS", "Job", "charts", "reproduce", "results"]
