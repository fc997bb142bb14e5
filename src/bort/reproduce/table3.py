"""Table 3 of the paper (tab:insertion_deletion): deletion and insertion of all saliency methods, with SGD and with Bort-S.
ACNN-Base on Tiny ImageNet stands in for the paper's on ImageNet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bort import measure
from bort.reproduce._areas import (
    DELETION_STEPS,
    METHODS,
    areas_of,
    difference,
    options_for,
    over_seeds,
    verdict,
    why_unpaired,
)
from bort.reproduce._cells import accuracy_cell, failures, file_links, markdown, number_cell
from bort.reproduce._measure import training
from bort.reproduce._pairs import Pair, acnn_small, digits, sgd_and_bort
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Table, Trained

Areas = tuple[float, float]
"""Under deletion and insertion."""
PAPER: Final[dict[str, dict[str, tuple[Areas, Areas]]]] = {
    "mnist": {
        "cam": ((0.25, 0.67), (0.31, 0.63)),
        "ig": ((-0.04, 0.73), (-0.07, 0.78)),
        "rise": ((0.06, 0.64), (0.02, 0.72)),
        "xrai": ((0.12, 0.73), (0.13, 0.79)),
        "guided-ig": ((-0.04, 0.71), (-0.05, 0.78)),
        "sat": ((0.26, 0.61), (0.05, 0.80)),
    },
    "cifar10": {
        "cam": ((0.32, 0.70), (0.29, 0.76)),
        "ig": ((-0.37, 0.81), (-0.44, 0.84)),
        "rise": ((0.14, 0.75), (0.14, 0.78)),
        "xrai": ((0.24, 0.76), (0.22, 0.79)),
        "guided-ig": ((-0.28, 0.78), (-0.26, 0.82)),
        "sat": ((0.31, 0.76), (0.27, 0.81)),
    },
    "imagenet": {
        "cam": ((0.49, 0.67), (0.44, 0.77)),
        "ig": ((0.07, 0.79), (0.07, 0.88)),
        "rise": ((0.43, 0.75), (0.39, 0.82)),
        "xrai": ((0.39, 0.78), (0.34, 0.84)),
        "guided-ig": ((0.06, 0.82), (0.07, 0.88)),
        "sat": ((0.35, 0.78), (0.32, 0.84)),
    },
}
"""With SGD, then with Bort, by data set and method."""
_STANDS_FOR: Final = {"folder:tiny-imagenet-100": "imagenet"}

_LAYERS: Final = {"acnn-base": "conv8"}
"""Section 4.2.2: visualizations are of the 5th layer of ACNN-Small, which is its top, and of the 8th of ACNN-Base."""


def _pairs(quick: bool) -> list[Pair]:
    return digits() if quick else [*acnn_small(), sgd_and_bort("tiny-imagenet-acnn-base")]


def experiments(quick: bool) -> list[Experiment]:
    areas = partial(saliency, images=8, masks=50) if quick else partial(saliency, images=1000, masks=1000)
    return [Experiment(recipe, areas) for pair in _pairs(quick) for recipe in (pair.baseline, pair.bort)]


def saliency(trained: Trained, *, images: int, masks: int) -> dict[str, Any]:
    """Areas under deletion and insertion by all scores: mean and standard error over the images."""
    x, _ = trained.examples(images)
    options = options_for(images, masks)
    net = trained.run.recipe.net.name
    if net in _LAYERS:
        options["sat"] = {"layer": _LAYERS[net]}
    methods = areas_of(trained.model, x, METHODS, options, by_image=True)
    return training(trained) | {"methods": methods, "images": len(x), "masks": masks}


@dataclass(frozen=True)
class Both:
    """What there is of a pair, by seed."""

    name: str
    baseline: list[Result]
    bort: list[Result]


def _complete(results: list[Result]) -> list[Both]:
    """Pairs with results of both networks, by name."""
    both = [
        Both(
            pair.name,
            [result for result in results if result.row == pair.baseline.name],
            [result for result in results if result.row == pair.bort.name],
        )
        for pair in (*_pairs(quick=False), *_pairs(quick=True))
    ]
    return sorted((pair for pair in both if pair.baseline and pair.bort), key=lambda pair: pair.name)


def section(results: list[Result]) -> str:
    finished = [result for result in results if not result.failed]
    if not finished:
        return failures(results)
    metrics, pairs = finished[0].metrics, _complete(finished)
    accuracies = "; ".join(f"{p.name} {accuracy_cell(p.baseline)} → {accuracy_cell(p.bort)}" for p in pairs)
    head = (
        f"`bort reproduce table3`. {metrics['images']} test images, the class that each network says, pixels to and from the "
        f"mean colour, {DELETION_STEPS} steps, RISE with {metrics['masks']} masks. *better* or *worse* with Bort where the "
        "difference is more than two standard errors of it over the images, = otherwise; another training may differ by "
        f"more. {_unpaired(pairs)}Files: {file_links(results)}.\n\n"
        f"Accuracy of the networks, which the areas depend on: {accuracies.replace(' (n = 1)', '%')}.\n\n"
    )
    parts = [_by_score(pairs, score) for score in sorted(measure.SCORES, key=lambda score: score != "relative")]
    return head + failures(results) + "\n".join(parts)


def _unpaired(pairs: list[Both]) -> str:
    """A sentence for each reason that images cannot be paired."""
    names: dict[str, list[str]] = {}
    for pair in pairs:
        reason = why_unpaired(pair.baseline, pair.bort)
        if reason:
            names.setdefault(reason, []).append(pair.name)
    return "".join(
        f"Of {', '.join(of)} {reason}: errors are those of different images for the two networks, which is mostly too "
        "cautious, so = may hide a difference. "
        for reason, of in names.items()
    )


def _by_score(pairs: list[Both], score: str) -> str:
    """The relative score stands beside the paper's table, whose scale no other score has."""
    rows, agreements = [], ""
    for pair in pairs:
        data = pair.bort[0].recipe.data.name
        papers = PAPER.get(_STANDS_FOR.get(data, data), {}) if score == "relative" else {}
        improved: dict[tuple[bool, bool], list[str]] = {}  # (here, in the paper): "method end"
        for method in pair.baseline[0].metrics["methods"]:
            cells, paper = [], papers.get(method)
            for place, end in enumerate(("deletion", "insertion")):
                means = [over_seeds(runs, method, f"{score} {end}") for runs in (pair.baseline, pair.bort)]
                change = _change(pair, method, score, end)
                cells += [*(number_cell(mean and mean[0], digits=3) for mean in means), change]
                if paper:
                    before, after = (areas[place] for areas in paper)
                    mark = " (ImageNet)" if data in _STANDS_FOR else ""
                    cells.append(f"{before:.2f} → {after:.2f}{mark}")
                    theirs = verdict((after - before, 0.0), lower_is_better=end == "deletion")
                    if change != "–":
                        improved.setdefault((change == "better", theirs == "better"), []).append(f"{method} {end}")
                elif score == "relative":
                    cells.append("–")
            rows.append((pair.name, method, *cells))
        agreements += _agreement(pair.name, improved)
    paper_column = ("paper",) if score == "relative" else ()
    deletion, insertion = ("deletion, baseline ↓", "Bort ↓", ""), ("insertion, baseline ↑", "Bort ↑", "")
    header = ("network", "method", *deletion, *paper_column, *insertion, *paper_column)
    return f"## Score: {score}\n\n{_SCORES[score]}.\n\n" + markdown(header, rows) + (agreements and f"\n{agreements}")


def _agreement(network: str, improved: dict[tuple[bool, bool], list[str]]) -> str:
    """A line on the cells that get better with Bort, by (here, in the paper)."""
    titles = {(True, True): "here and in the paper", (False, True): "in the paper only", (True, False): "here only"}
    lists = [f"{title}: {', '.join(improved[where])}" for where, title in titles.items() if where in improved]
    return f"- {network}, better with Bort {'; '.join(lists)}.\n" if lists else ""


_SCORES: Final = {
    "relative": "The logit divided by that of the clean image: of the three the only one with areas below 0 on the scale "
    "of the paper's table, which has such; but the paper has none above 1",
    "logit": "The logit of the class, whose scale is each network's own: compare methods, not networks",
    "probability": "The probability of the class, as RISE's authors do it",
}


def summary(results: list[Result]) -> str:
    """A line for each network: how many of its cells are better with Bort, and how many worse."""
    rows = []
    for pair in _complete([result for result in results if not result.failed]):
        cells = []
        for score in measure.SCORES:
            verdicts = [
                _change(pair, method, score, end)
                for method in pair.baseline[0].metrics["methods"]
                for end in ("deletion", "insertion")
            ]
            compared = len(verdicts) - verdicts.count("–")
            cells.append(f"{verdicts.count('better')} better, {verdicts.count('worse')} worse of {compared}")
        rows.append((pair.name, f"{accuracy_cell(pair.baseline)} → {accuracy_cell(pair.bort)}", *cells))
    text = "Areas under deletion and insertion of the six methods, better or worse with Bort, by the score that is followed"
    return f"{text}:\n\n{markdown(('network', 'accuracy %', *measure.SCORES), rows)}" if rows else failures(results)


def _change(pair: Both, method: str, score: str, end: str) -> str:
    change = difference(pair.baseline, pair.bort, method, f"{score} {end}")
    return verdict(change, lower_is_better=end == "deletion")


TABLE = Table("Table 3: deletion and insertion", experiments, section, summary, seeds=(0,))
