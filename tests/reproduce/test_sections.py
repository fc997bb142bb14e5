"""Pages of the other results, from results that are made up."""

import math
import statistics
from dataclasses import replace
from functools import cache

import pytest
import torch
from scipy import stats

from bort import train
from bort.reproduce import Trained, get
from bort.reproduce._cells import Pair, interval, verdict
from tests.reproduce.small import RECIPES, line, result


@pytest.mark.parametrize(
    ("accuracies", "cells"),
    [
        ((98.5, 99.5), "98.42 | 99.00 ± 0.71 (n = 2) | +0.58 | matches | 0.500"),
        ((90.0,), "98.42 | 90.00 (n = 1) | -8.42 | below the paper | 0.500"),
        ((99.5, None), "98.42 | 99.50 (n = 1, 1 failed) | +1.08 | above the paper | 0.500"),
        ((None, None), "98.42 | – (n = 0, 2 failed) | – | failed | –"),
    ],
)
def test_a_row_beside_the_papers(accuracies, cells):
    row = RECIPES["mnist-acnn-small-sgd"]
    seeds = [
        result("table1", row, accuracy or 0, seed=seed, failed="" if accuracy else "the loss is nan")
        for seed, accuracy in enumerate(accuracies)
    ]
    text = get("table1").section(seeds)
    assert line(text, "| mnist-acnn-small-sgd").startswith(f"| mnist-acnn-small-sgd | {cells} |")


def test_a_quick_row_is_not_the_papers():
    text = get("table1").section([result("table1", RECIPES["mnist5k-lenet-sgd"], quick=True)])
    assert "| – | 50.00 (n = 1) | – | quick, built-in digits |" in line(text, "| mnist5k")
    assert "Not the paper's data" in text


def test_table_2_tells_what_lambda_does_from_what_decay_does():
    recipes = {e.recipe.name: e.recipe for e in get("table2").experiments(False)}
    rows = []
    for name, accuracies in {
        "adamw": (60.0, 60.0),
        "adamw-decay-0.005": (40.0, 42.0),
        "bort-a": (41.0, 43.0),
        "bort-a-paper-pull": (45.0, 48.0),
    }.items():
        recipe = recipes[f"tiny-imagenet-deit-s-{name}"]
        rows += [result("table2", recipe, accuracy, seed=seed, top5=0.5) for seed, accuracy in enumerate(accuracies)]
    text = get("table2").section(rows)
    assert "| 41.00 ± 1.41 (n = 2) |  | 50.00 ± 0.00 (n = 2) |" in line(
        text, "| deit-s | adamw with Bort's weight decay |"
    )
    # 5 and 6 points: 5.5 ± 12.706 · 0.7071 / √2
    pulled = line(text, "| deit-s | bort-a with the paper's pull, 4.7 |")
    assert "| 46.50 ± 2.12 (n = 2) | +5.50 [-0.85, +11.85] (n = 2) |" in pulled
    assert "| 80.41 |" in pulled, "the paper's"
    assert "+1.00 (n = 2)" in line(text, "| deit-s | bort-a with the paper's λ, 0.05 |")
    short = line(get("table2").summary(rows), "| deit-s, adamw |")
    assert "41.00 ± 1.41 (n = 2)" in short, "the control is the baseline"
    assert "46.50 ± 2.12 (n = 2), +5.50 [-0.85, +11.85] (n = 2) | 4.7 |" in short
    assert get("table2").summary(rows[:4]) == "No pair of baseline and Bort is there yet.\n"


@pytest.mark.parametrize(
    ("row", "pull"),
    [("vgg16-bort-s", 94), ("resnet50-bort-s", 9.4), ("resnet50-bort-a", 0.019), ("swin-s-bort-a", 4.7)],
)
def test_the_papers_pull_by_the_mean_of_its_rates(row, pull):
    """λ · steps · the mean rate of a cosine, half its largest, / (1 − momentum); the warm-up of 5 epochs changes little."""
    recipe = next(
        e.recipe for e in get("table2").experiments(False) if e.recipe.name == f"tiny-imagenet-{row}-paper-pull"
    )
    full = RECIPES[f"imagenet-{row}"]
    by_hand = full.optim.constraint * 300 * (1_281_167 / full.batch) * full.optim.lr / 2 / (1 - full.optim.momentum)
    assert recipe.optim.pull == pull
    assert pull == pytest.approx(by_hand, rel=0.03)


@pytest.mark.parametrize(
    ("row", "pull"), [("vgg16 | bort-a", 0.019), ("resnet50 | bort-l", 0.0094), ("deit-s | bort-a", 4.7)]
)
def test_how_far_the_papers_rows_pull(row, pull):
    """Where singular values end, step by step."""
    *_, from_less, from_three, _ = line(get("table2").section([]), f"| {row} |").strip("| ").split(" | ")
    for start, end in ((1.5, from_less), (3.0, from_three)):
        sigma = start
        for _ in range(10_000):
            sigma -= pull / 10_000 * (sigma**3 - sigma)
        assert f"{sigma:.2f}" == end


@pytest.mark.parametrize("n", range(2, 11))
@pytest.mark.parametrize("best_of", [1, 5])
def test_intervals_are_students(n, best_of):
    values = [math.sin(7 * i) for i in range(n)]
    confidence = 1 - 0.05 / best_of
    low, high = stats.t.interval(confidence, n - 1, loc=statistics.mean(values), scale=stats.sem(values))
    expected = f"{statistics.mean(values):+.3f} [{low:+.3f}, {high:+.3f}] (n = {n})"
    assert interval(values, digits=3, best_of=best_of) == expected


def test_differences_that_agree_by_chance_have_no_interval():
    assert interval([1.0, 1.0 + 1e-14]) == "+1.00 (n = 2)"


def test_a_verdict_says_only_what_the_interval_of_the_pairs_says():
    def seeds(*accuracies):
        return [result("table1", RECIPES["mnist-lenet-sgd"], value, seed=n) for n, value in enumerate(accuracies)]

    before = seeds(50.0, 52.0)
    said = verdict(
        {
            "steady": Pair(before, seeds(53.0, 55.1)),
            "worse": Pair(before, seeds(47.0, 49.1)),
            "by luck": Pair(before, seeds(51.0, 60.0)),
            "the same twice": Pair(before, seeds(53.0, 55.0)),
            "the best of many": Pair(before, seeds(53.0, 55.1), best_of=100),
            "once": Pair(before, seeds(48.5)),
            "never": Pair(before, []),
        }
    )
    assert said.splitlines()[2:] == [
        "- higher: steady",
        "- lower: worse",
        "- not decided: by luck; the same twice; the best of many",
        "- one seed only: once (-1.5 points)",
        "",
    ]
    assert verdict({"never": Pair(before, [])}) == ""


@cache
def lenet_experiments():
    return {experiment.recipe.name: experiment for experiment in get("lenet").experiments(False)}


def lenet(name, accuracy, **facts):
    """A result of the LeNet search, by the name of its recipe."""
    experiment = lenet_experiments()[name]
    return result("lenet", experiment.recipe, accuracy, note=experiment.note, **facts)


def test_the_nearest_lenet_and_the_most_accurate_one():
    rows = []
    for variant, sgd, weak, strong in (
        ("relu-max-momentum0.9-raw", 95.0, 99.5, 97.0),
        ("tanh-max-momentum0-raw", 80.01, 85.0, 86.85),  # 1 and 2 points from the paper's 79.01 and 88.85
        ("relu-max-momentum0-raw", 79.01, 99.0, None),  # the paper's with SGD, but there is none with λ 0.1
    ):
        for constraint, accuracy in (("0", sgd), ("0.01", weak), ("0.1", strong)):
            if accuracy is not None:
                rows.append(lenet(f"mnist-lenet-{variant}-lambda{constraint}", accuracy))
    summary = line(get("lenet").section(rows), "- mnist")
    assert "79.01 → 88.85" in summary
    assert "Nearest: tanh, max, momentum0, raw (gap 1.5)" in summary
    assert "Most accurate: relu, max, momentum0.9, raw, λ 0.01 (99.50%)" in summary


def test_dead_classes_are_counted_seed_by_seed():
    row = "mnist-lenet-relu-max-momentum0.9-normalised-relu_at_the_end-lambda"
    text = get("lenet").section(
        [
            lenet(f"{row}0", 79.1, dead_classes=2),
            lenet(f"{row}0.1", 98.9, dead_classes=0),
            lenet(f"{row}0", 88.8, seed=1, dead_classes=1),
        ]
    )
    assert line(text, "| mnist | 0 |").startswith("| mnist | 0 | 79.10 | 2 | 98.90 | 0 |")
    assert line(text, "| mnist | 1 |").startswith("| mnist | 1 | 88.80 | 1 | – | – |")
    assert "83.95 ± 6.86 (n = 2)" in line(text, "| mnist | relu, max, momentum0.9, normalised, relu at the end |")
    without = get("lenet").section([lenet("mnist-lenet-relu-max-momentum0.9-raw-lambda0", 79.1)])
    assert "seed by seed" not in without


def test_dead_classes_and_images_without_a_largest_logit(tmp_path):
    """Behind a ReLU class 0 never has a logit above 0; the first image has four logits of 0."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(1, 4, bias=False), torch.nn.ReLU())
    with torch.no_grad():
        model[1].weight[:] = torch.tensor([[-1.0], [-2.0], [1.0], [2.0]])
    pixels = train.recipes.Data("tests.reproduce.small:four_pixels", 1, channels=1, classes=4, normalise=False)
    recipe = replace(RECIPES["mnist5k-lenet-sgd"], data=pixels)
    run = train.Run(tmp_path, recipe, [{"accuracy": 0.75, "residual": 0.1}], [], model)
    measure = get("deep").experiments(True)[0].measure
    metrics = measure(Trained(run, None, "cpu", None, tmp_path / "pictures"))
    assert metrics["dead_classes"] == 1
    assert metrics["accuracy"] == (0.25 + 0 + 1 + 1) / 4, "four classes share the first image"
    assert metrics["residual"] == 0.1


def test_a_setting_stands_beside_the_row_that_it_changes():
    table1 = [
        result("table1", RECIPES["mnist-acnn-small-sgd"], 97.0),
        result("table1", RECIPES["mnist-acnn-small-bort-s"], 99.0),
        result("table1", RECIPES["cifar10-acnn-small-bort-s"], 70.0),
    ]
    changes = {e.recipe.name: e for e in get("settings").experiments(False)}
    changed = [
        result("settings", changes[name].recipe, accuracy, note=changes[name].note)
        for name, accuracy in (
            ("mnist-acnn-small-sgd-cosine", 98.0),
            ("mnist-acnn-small-bort-s-every-4", 99.1),
            ("cifar10-lenet-bort-s-cosine", 50.0),
        )
    ]
    text = get("settings").section([*changed, *table1])
    cosine, every = line(text, "| mnist-acnn-small-sgd-cosine"), line(text, "| mnist-acnn-small-bort-s-every-4")
    assert "| a cosine rate | 97.00 (n = 1) | 98.00 (n = 1) |" in cosine
    assert "| the penalty at each fourth step | 99.00 (n = 1) | 99.10 (n = 1) |" in every
    assert "| a cosine rate | – | 50.00 (n = 1) |" in line(text, "| cifar10-lenet-bort-s-cosine")
    assert "| mnist-acnn-small-sgd |" not in text, "rows of Table 1 have their own section"


def test_a_cell_of_the_grid_that_is_missing():
    cells = {e.recipe.name: e.recipe for e in get("ablation").experiments(False)}
    names = ("wd0-lambda0", "wd0-lambda0.1", "wd0.01-lambda0.1")
    rows = [result("ablation", cells[f"cifar10-acnn-small-{name}"], 10.0 * n) for n, name in enumerate(names, 1)]
    text = get("ablation").section(rows)
    assert line(text, "| weight decay") == "| weight decay \\ λ | 0 | 0.1 |"
    assert line(text, "| 0 |") == "| 0 | 10.00 (n = 1) | 20.00 (n = 1) |"
    assert line(text, "| 0.01 |") == "| 0.01 | – | 30.00 (n = 1) |"


def test_a_seed_of_the_deep_network_that_failed():
    recipe = get("deep").experiments(False)[0].recipe
    rows = [
        result("deep", recipe, 96.0, dead_classes=0, sigma=[0.1, 2.0]),
        result("deep", recipe, 61.0, seed=1, dead_classes=4, sigma=[0.2, 3.0]),
        result("deep", recipe, seed=2, failed="the loss is nan"),
    ]
    text = get("deep").section(rows)
    cells = "78.50 ± 24.75 (n = 2, 1 failed) | 96.00, 61.00, failed | 0, 4 | 0.10 … 3.00"
    assert cells in line(text, "| mnist5k-acnn-base-sgd")
    assert "0.5 times as wide" in text
