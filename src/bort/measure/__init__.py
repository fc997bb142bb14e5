"""Measurements of networks: the audit of their layers, how well saliency maps find the pixels that matter, whether the maps
depend on what was learned, calibration, and robustness."""

from bort.measure._audit import Audit, audit, compare
from bort.measure._calibration import Calibration, calibration
from bort.measure._columns import COLUMNS, Column, LayerAudit
from bort.measure._corruptions import CORRUPTIONS, corrupted
from bort.measure._curves import curves
from bort.measure._deletion import AtStep, DeletionInsertion, all_scores, at_step, deletion_insertion
from bort.measure._evaluate import AREA_TITLES, Evaluation, Evaluations, evaluate, notes
from bort.measure._layers import (
    Bounds,
    Comprehensibility,
    Gram,
    bounds,
    comprehensibility,
    gram,
    reconstruction_ratio,
)
from bort.measure._robustness import robustness
from bort.measure._sanity import MapSimilarity, map_similarity, random_map, randomised
from bort.measure._scores import SCORES, Score
from bort.measure._substrate import Substrate

__all__ = [
    "AREA_TITLES",
    "COLUMNS",
    "CORRUPTIONS",
    "SCORES",
    "AtStep",
    "Audit",
    "Bounds",
    "Calibration",
    "Column",
    "Comprehensibility",
    "DeletionInsertion",
    "Evaluation",
    "Evaluations",
    "Gram",
    "LayerAudit",
    "MapSimilarity",
    "Score",
    "Substrate",
    "all_scores",
    "at_step",
    "audit",
    "bounds",
    "calibration",
    "compare",
    "comprehensibility",
    "corrupted",
    "curves",
    "deletion_insertion",
    "evaluate",
    "gram",
    "map_similarity",
    "notes",
    "random_map",
    "randomised",
    "reconstruction_ratio",
    "robustness",
]
