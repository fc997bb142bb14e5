"""What is true of a network."""

from bort.measure._audit import Audit, LayerAudit, audit, compare
from bort.measure._deletion import DeletionInsertion, deletion_insertion

__all__ = ["Audit", "DeletionInsertion", "LayerAudit", "audit", "compare", "deletion_insertion"]
