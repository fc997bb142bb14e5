"""The record of an epoch, a line of history.jsonl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bort.train._assemble import Parts
from bort.train._counters import Counters
from bort.train._evaluate import layer_spectra, test_scores
from bort.train._nonfinite import check_weights
from bort.train._optimizer import pull, rate
from bort.train._schema import Recipe
from bort.train._world import World


def record_of_epoch(
    recipe: Recipe, parts: Parts, counters: Counters, world: World, after_test_batch: Callable[[], None]
) -> dict[str, Any]:
    """Test the network and measure its layers. All processes have to call this together."""
    check_weights(parts.net, f"step {counters.steps}")
    world.share_buffers(parts.net)
    scores = test_scores(
        parts.net,
        parts.feed,
        world,
        autocast=parts.autocast,
        sharded=parts.sharded,
        after_batch=after_test_batch,
    )
    spectra = layer_spectra(parts.net, parts.optimizer, recipe.optim.scale)
    totals = counters.totals()
    return {
        "epoch": counters.epochs + 1,
        "step": counters.steps,
        "loss": totals.loss_sum / totals.images,
        **scores,
        "lr": rate(recipe, counters.steps - 1, parts.feed.per_epoch),
        "pull": pull(recipe, counters.steps, parts.feed.per_epoch),
        **spectra,
        "skipped": round(totals.skipped),
        "seconds": counters.seconds,
    }
