"""Table 3 (tab:insertion_deletion) on networks that people use: deletion and insertion of all methods for DeiT-S and
ResNet-50 on Tiny ImageNet, with two sanity checks: maps of a network with random weights must differ, and a random map is the
floor.

The networks are those of Table 2: the baseline with Bort's weight decay, and Bort with the best pull (`BEST`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch

from bort import explain, measure
from bort.reproduce._areas import DELETION_STEPS, METHODS, areas_of, large_passes, mean_areas, options_for
from bort.reproduce._cells import accuracy_cell, failures, file_links, interval, markdown, values_of
from bort.reproduce._measure import training
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Table, Trained
from bort.reproduce.table2 import comparisons
from bort.train import Recipe

BEST: Final[dict[str, tuple[str, float | None]]] = {
    "DeiT-S, AdamW → Bort-A": ("tiny-imagenet-deit-s-bort-a", None),
    "ResNet-50, SGD → Bort-S": ("tiny-imagenet-resnet50-bort-s", 1.5),
}
"""By the title of the network: Bort's recipe, and the pull that did best on held-out training images with the paper's
augmentation (`bort reproduce pull`); None: the paper's is among the best."""
_SCORES: Final = ("probability", "relative")


def pairs() -> dict[str, tuple[Recipe, Recipe]]:
    """Baseline and Bort of each network, by its title."""
    of_recipe = {comparison.same_constraint.name: comparison for comparison in comparisons()}
    found = {}
    for title, (recipe, best) in BEST.items():
        pulled = of_recipe[recipe].same_pull
        if best is not None:
            pulled = replace(pulled, name=f"{recipe}-pull-{best:g}", optim=replace(pulled.optim, pull=best))
        found[title] = of_recipe[recipe].control, pulled
    return found


def experiments(quick: bool) -> list[Experiment]:
    if quick:
        raise ValueError("modern has no quick form: its networks need the images of a folder, and none are embedded")
    look = partial(looked_at, images=1000, masks=1000)
    return [Experiment(recipe, look) for pair in pairs().values() for recipe in pair]


def looked_at(trained: Trained, *, images: int, masks: int, compared: int = 100) -> dict[str, Any]:
    """Areas of every method and of random maps; and how alike the maps of the network and of its randomised copy are."""
    x, _ = trained.examples(images)
    model, options = trained.model, options_for(images, masks)
    with torch.no_grad():
        said = torch.cat([model(batch).argmax(dim=1) for batch in torch.split(x, 250)])
    random = measure.all_scores(model, x, measure.random_map(x), said, steps=DELETION_STEPS)
    few, classes = x[:compared], said[:compared]
    networks = (model, measure.randomised(model, x=x[:256]))
    similarity = {}
    with large_passes(x.device):
        for name in METHODS:
            method = explain.get(name)
            maps, others = (method(network, few, classes, **options.get(name, {})) for network in networks)
            similarity[name] = [round(mean, 4) for mean in measure.map_similarity(maps, others).means]
    return training(trained) | {
        "methods": areas_of(model, x, METHODS, options),
        "random_map": mean_areas(random),
        "similarity": similarity,
        "images": len(x),
        "masks": masks,
        "compared": len(few),
    }


def section(results: list[Result]) -> str:
    finished = [result for result in results if not result.failed]
    if not finished:
        return failures(results)
    text = (
        f"`bort reproduce modern`. {finished[0].metrics['images']} test images, the class that each network says, pixels to "
        f"and from the mean colour, {DELETION_STEPS} steps, RISE with {finished[0].metrics['masks']} masks. Differences are "
        "paired by seed. *random map*: what a map that says nothing gets. *like randomised*: Spearman's correlation of a "
        "map with that of the same network with its weights permuted, as it is and of the absolute values: near 0 for a "
        "method that shows what was learned.\n\n"
    )
    complete = _complete(finished)
    waiting = [r for r in finished if not any(r in seeds for both in complete.values() for seeds in both)]
    alone = f"Measured without their counterpart so far: {file_links(waiting)}.\n" if waiting else ""
    return text + failures(results) + alone + "\n".join(_network(name, *both) for name, both in complete.items())


def summary(results: list[Result]) -> str:
    """The change of insertion and deletion of every method."""
    complete = _complete([result for result in results if not result.failed])
    if not complete:
        return failures(results) + "Of no network are both the baseline and Bort measured yet.\n"
    rows = []
    for name, (before, after) in complete.items():
        for method in METHODS:
            cells = (
                _difference(before, after, "methods", method, f"probability {end}") for end in ("deletion", "insertion")
            )
            rows.append((name, method, *cells))
    text = "Change by Bort in the areas under deletion (lower is better) and insertion (higher is better), probability"
    return f"{text}:\n\n{markdown(('network', 'method', 'deletion ↓', 'insertion ↑'), rows)}"


def _complete(results: list[Result]) -> dict[str, tuple[list[Result], list[Result]]]:
    """Networks with results of both trainings."""
    both = {
        name: tuple([result for result in results if result.row == recipe.name] for recipe in pair)
        for name, pair in pairs().items()
    }
    return {name: (before, after) for name, (before, after) in both.items() if before and after}


def _network(name: str, before: list[Result], after: list[Result]) -> str:
    parts = [
        f"## {name}\n\nAccuracy {accuracy_cell(before)} → {accuracy_cell(after)}%. Files, by seed: "
        f"baseline {file_links(before)}, Bort {file_links(after)}.\n"
    ]
    for score in _SCORES:
        rows = []
        paths: dict[str, tuple[str, ...]] = {method: ("methods", method) for method in METHODS}
        paths["random map"] = ("random_map",)
        for label, path in paths.items():
            cells: list[str] = []
            for end in ("deletion", "insertion"):
                area = (*path, f"{score} {end}")
                cells += [*(_mean(seeds, *area) for seeds in (before, after)), _difference(before, after, *area)]
            similar = [_similarity(seeds, label) for seeds in (before, after)]
            rows.append((label, *cells, *similar))
        header = ("deletion, baseline ↓", "Bort ↓", "difference", "insertion, baseline ↑", "Bort ↑", "difference")
        like = ("like randomised, baseline", "like randomised, Bort")
        parts.append(f"### Score: {score}\n\n{markdown(('method', *header, *like), rows)}")
    return "\n".join(parts)


def _mean(seeds: list[Result], *path: str) -> str:
    values = values_of(seeds, *path)
    return f"{sum(values) / len(values):.3f}" if values else "–"


def _difference(before: list[Result], after: list[Result], *path: str) -> str:
    """Paired by seed, with its interval."""
    first, second = ({r.seed: values_of([r], *path) for r in seeds} for seeds in (before, after))
    differences = [second[s][0] - first[s][0] for s in sorted(first.keys() & second.keys()) if first[s] and second[s]]
    return interval(differences, digits=3)


def _similarity(seeds: list[Result], method: str) -> str:
    pairs_of = [result.metrics["similarity"].get(method) for result in seeds]
    known = [pair for pair in pairs_of if pair and None not in pair]
    return " / ".join(f"{sum(pair[i] for pair in known) / len(known):.2f}" for i in (0, 1)) if known else "–"


TABLE = Table("Table 3 on DeiT-S and ResNet-50", experiments, section, summary, seeds=(0, 1, 2))
