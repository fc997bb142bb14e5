"""The scores that deletion and insertion follow."""

from __future__ import annotations

from typing import Final, Literal

from torch import Tensor

from bort._inspect import ScoreFunction, own_scores, probabilities_of

Score = Literal["probability", "logit", "relative"]
"""The class's probability, its logit, or its logit relative to the clean image's."""
SCORES: Final[tuple[Score, ...]] = ("probability", "logit", "relative")
"""All values of :data:`Score`."""


def check_score(score: Score | ScoreFunction) -> None:
    if not callable(score) and score not in SCORES:
        raise ValueError(f'score={score!r}: choose "probability", "logit" or "relative", or give a function')


def scores_of(
    logits: Tensor, classes: Tensor, divisors: Tensor, score: Score | ScoreFunction, multi_label: bool
) -> Tensor:
    """(N, steps): the score of each image's class, from logits (N, steps, classes). Relative ones are divided by (N, 1)."""
    if callable(score):
        steps = logits.shape[1]
        return own_scores(score, logits.flatten(0, 1), classes.repeat_interleave(steps)).view(-1, steps)
    values = probabilities_of(logits, multi_label=multi_label) if score == "probability" else logits
    heights = values.gather(2, classes[:, None, None].expand(-1, logits.shape[1], 1))[:, :, 0]
    return heights / divisors if score == "relative" else heights
