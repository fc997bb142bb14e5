"""The page and the curves of the pulls, from results that are made up."""

import pytest

from bort.reproduce import get
from tests.reproduce.small import line, result


def test_pulls_are_paired_by_seed_with_none():
    recipes = {e.recipe.name: e.recipe for e in get("pull").experiments(False)}
    rows = []
    for name, accuracies in {
        "deit-s-plain-pull-0": (40.0, 42.0),
        "deit-s-plain-pull-1.5": (45.0, 48.0),
        "deit-s-plain-pull-5": (48.0,),
        "acnn-base-pull-0": (30.0,),
        "acnn-base-scale-2-pull-5": (28.0,),
    }.items():
        rows += [result("pull", recipes[name], accuracy, seed=seed) for seed, accuracy in enumerate(accuracies)]
    text = get("pull").section(rows)
    assert line(text, "| DeiT-S, crops and flips | 0 |").startswith(
        "| DeiT-S, crops and flips | 0 | 41.00 ± 1.41 (n = 2) |  |"
    )
    assert "| 46.50 ± 2.12 (n = 2) | +5.50 [-0.85, +11.85] (n = 2) |" in line(text, "| DeiT-S, crops and flips | 1.5 |")
    # Without a pull there is no target: the same training is the baseline of both.
    assert "| 28.00 (n = 1) | -2.00 (n = 1) |" in line(text, "| ACNN-Base, WᵀW = 2·I | 5 |")
    short = get("pull").summary(rows)
    # Not the pull of 5, whose only seed is more accurate than the mean of the two.
    assert "| 1.5 | 41.00 ± 1.41 (n = 2) → 46.50 ± 2.12 (n = 2) | +5.50 [-0.85, +11.85] (n = 2) |" in short
    assert "| ACNN-Base, WᵀW = 2·I | 0 | 30.00 (n = 1) | none is better |" in short


@pytest.mark.parametrize(("images", "rebuilt"), [(200, 64), (16, 16)])
def test_the_page_says_how_many_images_were_looked_at(images, rebuilt):
    """The first training failed, so it has looked at none."""
    failed, finished = (e.recipe for e in get("pull").experiments(False)[:2])
    text = get("pull").section([result("pull", failed, failed="nan"), result("pull", finished, images=images)])
    looked_at = f"on {images}, reconstruction (correlation with the image, from the top layer) on {rebuilt}."
    assert looked_at in text


def test_the_curves_are_changes_from_the_same_seed_without_a_pull():
    recipes = {e.recipe.name: e.recipe for e in get("pull").experiments(False)}
    rows = []
    for name, seeds in {
        "deit-s-pull-0": {0: 40.0, 1: 42.0},
        "deit-s-pull-1.5": {0: 45.0, 1: 49.0, 2: 99.0},  # of a seed that has no training without a pull
        "acnn-base-pull-0": {0: 30.0},
        "acnn-base-scale-2-pull-5": {0: 28.0},
    }.items():
        rows += [
            result("pull", recipes[name], value, seed=seed, median_residual=value / 10) for seed, value in seeds.items()
        ]
    figure = get("pull").charts["curves"](rows)
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes}
    changes = {line.get_label(): line for line in panels["change of accuracy, points ↑"].lines}
    assert changes["DeiT-S"].get_ydata() == pytest.approx([0.0, 6.0])
    assert changes["ACNN-Base, WᵀW = 2·I"].get_ydata() == pytest.approx([0.0, -2.0])
    residuals = {line.get_label(): line for line in panels["median residual"].lines}
    assert residuals["DeiT-S"].get_ydata() == pytest.approx([4.1, 193 / 30])
    assert residuals["ACNN-Base, WᵀW = 2·I"].get_ydata() == pytest.approx([2.8]), "without a pull there is no target"
    deit, wide = changes["DeiT-S"], changes["ACNN-Base, WᵀW = 2·I"]
    assert wide.get_linestyle() == "--"
    assert deit.get_color() != wide.get_color(), "a variant without its network is not taken for another's"


def test_every_network_of_the_curves_looks_different():
    rows = [result("pull", e.recipe, 40.0, median_residual=0.1) for e in get("pull").experiments(False)]
    figure = get("pull").charts["curves"](rows)
    lines = [line for line in figure.axes[0].lines if not line.get_label().startswith("_")]
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in lines}
    assert len(looks) == len(lines) == 9


def test_a_pull_counts_only_with_the_same_seed_without_it():
    recipes = {e.recipe.name: e.recipe for e in get("pull").experiments(False)}

    def rows(**accuracies):
        return [
            result("pull", recipes[f"deit-s-pull-{pull.strip('_').replace('_', '.')}"], value, seed=seed)
            for pull, seeds in accuracies.items()
            for seed, value in seeds.items()
        ]

    alone = rows(_0={0: 40.0}, _1_5={1: 45.0})
    assert get("pull").summary(alone) == "No pull has been compared with none yet.\n"
    assert get("pull").charts["curves"](alone) is None
    lucky = get("pull").summary(rows(_0={0: 40.0, 1: 40.0}, _1_5={0: 39.0, 1: 39.0}, _5={0: 47.0}))
    assert "Of the pulls with the most seeds none is more accurate than 0 for DeiT-S." in lucky
