"""What is true of a network."""

from bort.measure._audit import Audit, LayerAudit, audit, compare
from bort.measure._deletion import DeletionInsertion, all_scores, deletion_insertion
from bort.measure._evaluate import Evaluation, evaluate
from bort.measure._layers import (
    Bounds,
    Comprehensibility,
    Gram,
    bounds,
    comprehensibility,
    gram,
    reconstruction_ratio,
)

__all__ = [
    "Audit",
    "Bounds",
    "Comprehensibility",
    "DeletionInsertion",
    "Evaluation",
    "Gram",
    "LayerAudit",
    "all_scores",
    "audit",
    "bounds",
    "compare",
    "comprehensibility",
    "deletion_insertion",
    "evaluate",
    "gram",
    "reconstruction_ratio",
]
