"""Measurements of networks: the audit of their layers, and how well saliency maps find the pixels that matter."""

from bort.measure._audit import Audit, audit, compare
from bort.measure._columns import COLUMNS, Column, LayerAudit
from bort.measure._deletion import (
    SCORES,
    AtStep,
    DeletionInsertion,
    Score,
    all_scores,
    at_step,
    deletion_insertion,
)
from bort.measure._evaluate import Evaluation, evaluate, notes
from bort.measure._layers import (
    Bounds,
    Comprehensibility,
    Gram,
    bounds,
    comprehensibility,
    gram,
    reconstruction_ratio,
)
from bort.measure._substrate import Substrate

__all__ = [
    "COLUMNS",
    "SCORES",
    "AtStep",
    "Audit",
    "Bounds",
    "Column",
    "Comprehensibility",
    "DeletionInsertion",
    "Evaluation",
    "Gram",
    "LayerAudit",
    "Score",
    "Substrate",
    "all_scores",
    "at_step",
    "audit",
    "bounds",
    "compare",
    "comprehensibility",
    "deletion_insertion",
    "evaluate",
    "gram",
    "notes",
    "reconstruction_ratio",
]
