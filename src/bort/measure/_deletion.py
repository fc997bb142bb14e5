r"""Deletion and insertion (Petsiuk et al. 2018; paper, tab:insertion_deletion).

Pixels are ranked by a saliency map. Deletion takes them away from the image, most salient first; insertion puts them into an
empty one. The score of the class is followed over n + 1 images, both ends included, and the area under it is the mean height
of the curve by the trapezoid rule. Good maps make deletion fall early and insertion rise early.

Three scores. "probability" is what RISE's authors use. "logit" is what the classifier computes. "relative", the logit divided
by that of the clean image, is the only one that fits the paper's table, which has areas below 0 and none above 1;
it says something as long as the clean image's logit is well above 0, as it is for the class that the model chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bort._inspect import evaluating, outputs_of
from bort.explain._common import Progress, Target, at_once, check_images, classes_of

Score = Literal["probability", "logit", "relative"]
SCORES: Final[tuple[Score, ...]] = ("probability", "logit", "relative")
Substrate = Literal["zero", "mean", "blur"]


@dataclass(frozen=True)
class DeletionInsertion:
    """Curves (N, steps + 1) and their areas (N,), for each image."""

    deletion_curves: Tensor
    insertion_curves: Tensor
    deletion: Tensor
    insertion: Tensor
    score: Score
    substrates: tuple[Substrate, Substrate]
    """What deletion goes to, and what insertion starts from."""

    @property
    def means(self) -> tuple[float, float]:
        """Mean areas of deletion (smaller is better) and insertion (larger is better)."""
        return self.deletion.double().mean().item(), self.insertion.double().mean().item()


def deletion_insertion(
    model: nn.Module,
    x: Tensor,
    saliency: Tensor,
    target: Target = None,
    *,
    steps: int = 28,
    score: Score = "relative",
    deletion_to: Substrate = "zero",
    insertion_from: Substrate = "zero",
    progress: Progress | None = None,
) -> DeletionInsertion:
    """How fast the score of a class falls and rises with the most salient pixels.

    Args:
        model, x: any classifier and a batch of images (N, C, H, W).
        saliency: (N, H, W), from any method. Of equal values the earlier pixel comes first, row by row: SAT's and XRAI's maps
            are full of ties.
        target: the class; what the model says of the clean image by default.
        steps: how many times pixels change; each time about the same number.
        score: "probability", "logit" or "relative".
        deletion_to, insertion_from: "zero" (the mean colour of normalised images), "mean" (each image's own mean colour), or
            "blur" (11 × 11 Gaussian of deviation 5, which RISE's authors use for insertion).
        progress: called after each chunk of images.
    """
    if score not in SCORES:
        raise ValueError(f'score={score!r}: choose "probability", "logit" or "relative"')
    substrates: tuple[Substrate, Substrate] = (deletion_to, insertion_from)
    return all_scores(model, x, saliency, target, steps=steps, substrates=substrates, progress=progress)[score]


@torch.no_grad()
def all_scores(
    model: nn.Module,
    x: Tensor,
    saliency: Tensor,
    target: Target = None,
    *,
    steps: int = 28,
    substrates: tuple[Substrate, Substrate] = ("zero", "zero"),
    progress: Progress | None = None,
) -> dict[Score, DeletionInsertion]:
    """:func:`deletion_insertion` with each of the scores, all out of the same passes through the model."""
    check_images(model, x)
    saliency = torch.as_tensor(saliency)
    if saliency.shape != (len(x), *x.shape[-2:]):
        raise ValueError(
            f"saliency of shape {tuple(saliency.shape)}: for these images it must be {(len(x), *x.shape[-2:])}"
        )
    if not torch.isfinite(saliency).all():
        raise ValueError("the saliency has NaN or Inf in it")
    pixels = x.shape[-2] * x.shape[-1]
    if not 1 <= steps <= pixels:
        raise ValueError(f"steps={steps}: choose from 1 to {pixels}, the number of pixels")
    classes = classes_of(model, x, target)
    size = at_once(model, x)
    images_of_a_chunk = max(1, size // (steps + 1))
    found: dict[Score, tuple[list[Tensor], list[Tensor]]] = {score: ([], []) for score in SCORES}
    with evaluating(model):
        for start in range(0, len(x), images_of_a_chunk):
            part = slice(start, start + images_of_a_chunk)
            images, chosen = x[part], classes[part]
            rank = _ranks(saliency[part].to(x.device))
            clean = outputs_of(model, images).gather(1, chosen[:, None])
            ends = ((images, _substrate(images, substrates[0])), (_substrate(images, substrates[1]), images))
            for which, (begin, end) in enumerate(ends):
                told = _outputs_between(model, begin, end, rank, steps, size)
                for score in SCORES:
                    found[score][which].append(_curve(told, chosen, clean, score))
            if progress is not None:
                progress(min(len(x), start + images_of_a_chunk), len(x))
    result: dict[Score, DeletionInsertion] = {}
    for score, (deletions, insertions) in found.items():
        deletion, insertion = torch.cat(deletions), torch.cat(insertions)
        result[score] = DeletionInsertion(deletion, insertion, _area(deletion), _area(insertion), score, substrates)
    return result


def _ranks(saliency: Tensor) -> Tensor:
    """(N, H, W): 0 for the most salient pixel. Stable: ties go in reading order."""
    order = saliency.flatten(1).argsort(dim=1, descending=True, stable=True)
    places = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places).view(saliency.shape)


def _outputs_between(model: nn.Module, begin: Tensor, end: Tensor, rank: Tensor, steps: int, size: int) -> Tensor:
    """(N, steps + 1, classes) of begin with more and more pixels of end: images and steps together, in few batches."""
    counts = torch.linspace(0, rank[0].numel(), steps + 1, device=rank.device).round().long()
    outputs = []
    for some in torch.split(counts, max(1, size // len(begin))):
        changed = rank[:, None] < some[None, :, None, None]
        mixed = torch.where(changed[:, :, None], end[:, None], begin[:, None]).flatten(0, 1)
        outputs.append(outputs_of(model, mixed).view(len(begin), len(some), -1))
    return torch.cat(outputs, dim=1)


def _curve(outputs: Tensor, classes: Tensor, clean: Tensor, score: Score) -> Tensor:
    """(N, steps + 1): the score of each image's class."""
    told = outputs.softmax(dim=2) if score == "probability" else outputs
    curve = told.gather(2, classes[:, None, None].expand(-1, outputs.shape[1], 1))[:, :, 0]
    return curve / clean if score == "relative" else curve


def _area(curves: Tensor) -> Tensor:
    return (curves[:, 1:] + curves[:, :-1]).sum(dim=1) / (2 * (curves.shape[1] - 1))


def _substrate(images: Tensor, kind: Substrate) -> Tensor:
    if kind == "zero":
        return torch.zeros_like(images)
    if kind == "mean":
        return images.mean(dim=(2, 3), keepdim=True).expand_as(images)
    if kind != "blur":
        raise ValueError(f'a substrate is "zero", "mean" or "blur", not {kind!r}')
    kernel = _blur().to(images)
    channels = images.shape[1]
    across = F.conv2d(images, kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1), padding=(0, 5), groups=channels)
    return F.conv2d(across, kernel.view(1, 1, -1, 1).expand(channels, 1, -1, 1), padding=(5, 0), groups=channels)


def _blur() -> Tensor:
    """(11,): one side of the kernel that RISE's authors use, a Gaussian of deviation 5 on 11 places. What would lie outside
    is mirrored at the ends, as scipy's gaussian_filter does; so it is flatter than a Gaussian that is cut off."""
    offsets = torch.arange(-20, 21)
    weights = torch.exp(-offsets.double().square() / (2 * 5.0**2))
    places = (5 + offsets) % 22
    return torch.zeros(11, dtype=torch.float64).index_add(
        0, torch.minimum(places, 21 - places), weights / weights.sum()
    )
