"""What is true of a network."""

from bort.measure._audit import Audit, LayerAudit, audit, compare

__all__ = ["Audit", "LayerAudit", "audit", "compare"]
