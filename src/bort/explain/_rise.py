r"""RISE (Petsiuk et al. 2018): the class's score on randomly masked images.

:math:`A = \frac{1}{M p} \sum_j s_t(x \odot m_j) \, m_j`, the masks m being random grids, enlarged bilinearly and shifted at
random.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bort._inspect import (
    Progress,
    ScoreFunction,
    Target,
    check_images,
    classes_of,
    evaluating,
    finite,
    images_at_once,
    outputs_of,
    own_scores,
    probabilities_of,
    widened,
)

_CALLS = 40
"""At least so many calls of progress: enough to see it move and to cancel it soon."""
_SMALLEST_PASS = 64
"""No pass is made smaller than this for the sake of progress: smaller ones cost time."""

_ROUNDING = 1e-6
"""Scores that differ by less than this part of their size are the same, up to the rounding of float32."""


@torch.no_grad()
def rise(
    model: nn.Module,
    x: Tensor,
    target: Target = None,
    *,
    masks: int = 4000,
    cells: int = 8,
    keep: float = 0.5,
    score: Literal["probability", "logit"] | ScoreFunction = "probability",
    multi_label: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tensor:
    """Saliency maps (N, H, W) by RISE. All images get the same masks; memory does not grow with their number.

    Args:
        model, x: any torch model and a batch of images.
        target: the class to explain; the predicted one by default.
        masks: how many.
        cells: of a mask's grid, in each direction.
        keep: probability that a cell is left open.
        score: of the target: its probability, as published (a sigmoid if there is a single logit), or its logit; or a
            function of logits (N, classes) and classes (N,) that returns (N,) scores.
        multi_label: whether an image may have several classes: probabilities are then sigmoids of the single logits.
        seed: of the masks.
        progress: called after each pass, with the number of masked images done; see :data:`Progress`.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> maps = explain.rise(model, x, masks=50)
        >>> torch.equal(maps, explain.rise(model, x, masks=50))  # the masks are those of the seed
        True
    """
    check_images(model, x)
    if masks < 1 or cells < 1 or not 0 < keep < 1:
        raise ValueError(f"masks={masks}, cells={cells}, keep={keep}: 1 or more masks and cells, and 0 < keep < 1")
    if not callable(score) and score not in ("probability", "logit"):
        raise ValueError(f'score={score!r}: choose "probability" or "logit", or give a function')
    grids, rows, columns = draw(masks, cells, keep, x.shape[-2:], torch.Generator().manual_seed(seed))
    sums = torch.zeros(len(x), *x.shape[-2:], dtype=torch.float64, device=x.device)
    ranges = torch.tensor([math.inf, -math.inf], dtype=torch.float64, device=x.device).repeat(len(x), 1)
    classes, size = classes_of(model, x, target), images_at_once(model, x)
    done, total = 0, masks * len(x)
    # With progress the passes are smaller, but scores are summed in chunks of the same size: the map does not change.
    pass_size = size if progress is None else min(size, max(_SMALLEST_PASS, math.ceil(total / _CALLS)))
    with evaluating(model):
        for start in range(0, masks, size):
            part = slice(start, start + size)
            chunk = enlarge(grids[part], rows[part], columns[part], x.shape[-2:]).to(x)
            for n in range(len(x)):
                scores = []
                for pass_masks in chunk.tensor_split(math.ceil(len(chunk) / pass_size)):
                    logits = widened(outputs_of(model, x[n] * pass_masks[:, None]))
                    scores.append(_scores(logits, classes[n], score, multi_label).double())
                    done += len(pass_masks)
                    if progress is not None:
                        progress(done, total)
                of_masks = torch.cat(scores)
                sums[n] += torch.einsum("m,mhw->hw", of_masks, chunk.double())
                lowest, highest = of_masks.aminmax()
                ranges[n] = torch.stack([ranges[n, 0].minimum(lowest), ranges[n, 1].maximum(highest)])
    # A score that no mask changes, such as that of a head that starts at 0, would leave the pattern of the masks: the same
    # "explanation" for every network. It is a constant map.
    lowest, highest = ranges.unbind(1)
    changes = highest - lowest > _ROUNDING * torch.maximum(highest.abs(), lowest.abs())
    sums = torch.where(changes[:, None, None], sums, (masks * keep * highest)[:, None, None])
    return finite(sums / (masks * keep), "the maps").to(widened(x).dtype)


def _scores(logits: Tensor, target: Tensor, score: str | ScoreFunction, multi_label: bool) -> Tensor:
    """(N,) from logits (N, classes)."""
    if callable(score):
        return own_scores(score, logits, target.expand(len(logits)))
    return (probabilities_of(logits, multi_label=multi_label) if score == "probability" else logits)[:, target]


def draw(
    count: int, cells: int, keep: float, size: torch.Size, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Grids (count, cells, cells) of open and closed cells, and by how many rows and columns (count,) each is shifted. All
    are drawn at once, so that the masks do not depend on the size of the chunks."""
    height, width = _cell(cells, size)
    grids = torch.rand(count, cells, cells, generator=generator) < keep
    rows = torch.randint(height, (count,), generator=generator)
    return grids, rows, torch.randint(width, (count,), generator=generator)


def enlarge(grids: Tensor, rows: Tensor, columns: Tensor, size: torch.Size) -> Tensor:
    """(count, H, W) in [0, 1]: the grids enlarged bilinearly to one cell more than the image in each direction, and cropped
    to it at their shifts."""
    cells = grids.shape[-1]
    larger = [(cells + 1) * side for side in _cell(cells, size)]
    enlarged = F.interpolate(grids[:, None].float(), larger, mode="bilinear", align_corners=False)[:, 0]
    down = rows[:, None] + torch.arange(size[0])
    across = columns[:, None] + torch.arange(size[1])
    image = torch.arange(len(grids))[:, None, None]
    return enlarged[image, down[:, :, None], across[:, None, :]]


def _cell(cells: int, size: torch.Size) -> tuple[int, int]:
    """Height and width of a cell in pixels."""
    return math.ceil(size[0] / cells), math.ceil(size[1] / cells)
