"""What is true of a network."""

from bort.measure._audit import Audit, LayerAudit, audit, compare
from bort.measure._deletion import DeletionInsertion, deletion_insertion
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
    "Gram",
    "LayerAudit",
    "audit",
    "bounds",
    "compare",
    "comprehensibility",
    "deletion_insertion",
    "gram",
    "reconstruction_ratio",
]
