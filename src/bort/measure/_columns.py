"""A row of the audit, and its columns: the one definition that every table of an audit is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class LayerAudit:
    """One layer's weight, read as matrices (out, in). The Gram matrix is the smaller one, as in `penalty.residual`.

    Example:
        >>> (layer,) = bort.audit(nn.Sequential(nn.Conv2d(4, 8, 3, groups=2)))
        >>> layer.kind, layer.shape, layer.blocks
        ('grouped convolution, 2 blocks', (4, 18), 2)
    """

    name: str
    kind: str
    shape: tuple[int, int]
    blocks: int
    invertible: bool
    """Whether WᵀW = I is possible at all (equ:orth): at least as many rows as columns."""
    sigma: tuple[float, float]
    """Smallest and largest singular value."""
    row_norms: tuple[float, float]
    """Smallest and largest ‖w_j‖; the largest is C_w of equ:bound."""
    gram_diagonal: float
    """Mean of the Gram matrix's diagonal: 1 on the constraint."""
    gram_off_diagonal: float
    """Root mean square of its other entries: 0 on the constraint."""
    residual: float
    """Distance to the constraint, see `penalty.residual`."""
    floor: float
    """The lowest ratio that a wide layer can have for inputs without preferred directions: √(1 − out/in); 0 if it is tall.
    Real inputs lie in few directions, so real ratios can be lower."""
    ratio: float | None
    """‖z − Wᵀ(Wz)‖ / ‖z‖ over the layer's inputs z (section 4.2), None without data."""
    cosine: float | None
    """Comprehensibility (Definition 1): mean cosine of a weight with the patches that excite it most, None without data."""
    claim: float | None
    """What activations alone would claim it to be, see :class:`Comprehensibility`."""
    agreement: float | None
    """Rank correlation of the two over the rows."""


@dataclass(frozen=True)
class Column:
    """One column of an audit's table.

    Example:
        >>> (layer,) = bort.audit(nn.Sequential(nn.Linear(2, 3)))
        >>> matrix = next(column for column in measure.COLUMNS if column.key == "shape")
        >>> matrix.title, matrix.show(layer)
        ('matrix', '3×2')
    """

    key: str
    """The field of :class:`LayerAudit` that it shows."""
    title: str
    """Its header."""
    meaning: str
    """What it says, in one sentence."""
    is_number: bool
    """Whether its cells are single numbers, which tables align to the right."""
    show: Callable[[LayerAudit], str]
    """The text of its cell in a layer's row."""


def _matrix(layer: LayerAudit) -> str:
    return (f"{layer.blocks} of " if layer.blocks > 1 else "") + f"{layer.shape[0]}×{layer.shape[1]}"


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2f} … {ends[1]:.2f}"


def _number(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.2f}"


COLUMNS: Final[tuple[Column, ...]] = (
    Column("name", "layer", "The name of the weight.", False, lambda layer: layer.name),
    Column(
        "shape",
        "matrix",
        "Rows × columns of the matrix W, out × in (of a convolution out × in·k·k); grouped convolutions have several.",
        False,
        _matrix,
    ),
    Column(
        "invertible",
        "invertible",
        "Whether WᵀW = I is possible at all: only with at least as many rows as columns, and a wide layer loses a part of "
        "its input whatever its weights are.",
        False,
        lambda layer: "yes" if layer.invertible else "no, wide",
    ),
    Column(
        "sigma",
        "σ",
        "Smallest and largest singular value: on the constraint both are 1, with weight decay both √(1 − decay/λ).",
        False,
        lambda layer: _range(layer.sigma),
    ),
    Column(
        "row_norms",
        "‖row‖",
        "Smallest and largest row norm; the largest is the bound C_w.",
        False,
        lambda layer: _range(layer.row_norms),
    ),
    Column(
        "gram_diagonal",
        "Gram diag",
        "Mean of the diagonal of WᵀW, or of WWᵀ where that is smaller: 1 on the constraint.",
        True,
        lambda layer: f"{layer.gram_diagonal:.3f}",
    ),
    Column(
        "gram_off_diagonal",
        "off-diag",
        "Root mean square of the other entries of that matrix: 0 on the constraint.",
        True,
        lambda layer: f"{layer.gram_off_diagonal:.4f}",
    ),
    Column("residual", "residual", "Distance to the constraint, 0 on it.", True, lambda layer: f"{layer.residual:.3f}"),
    Column(
        "ratio",
        "ratio",
        "‖z − Wᵀ(Wz)‖ / ‖z‖ over the inputs z that the layer receives: the part of its input that its transpose fails to "
        "bring back, 0 being perfect and above 1 worse than bringing back nothing.",
        True,
        lambda layer: _number(layer.ratio),
    ),
    Column(
        "floor",
        "floor",
        "The lowest ratio that a wide layer can have for inputs without preferred directions, √(1 − out/in); real inputs "
        "have some, so real ratios can be lower.",
        True,
        lambda layer: _number(layer.floor or None),
    ),
    Column(
        "cosine",
        "cosine",
        "Comprehensibility (Definition 1): how much a weight looks like the patches that excite it most, 1 being the same "
        "direction.",
        True,
        lambda layer: _number(layer.cosine),
    ),
    Column(
        "claim",
        "claim",
        "The cosine that activations alone would claim; with unequal norms it can be too high or too low.",
        True,
        lambda layer: _number(layer.claim),
    ),
    Column(
        "agreement",
        "agreement",
        "Rank correlation of cosine and claim over the rows.",
        True,
        lambda layer: _number(layer.agreement),
    ),
)
"""The columns of an audit, in order. A table may leave some out; none writes its own."""
