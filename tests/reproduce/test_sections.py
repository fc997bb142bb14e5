"""Pages of results from results that are made up, so that the numbers are known."""

import json
import math
import statistics
from dataclasses import replace
from functools import cache

import pytest
import torch
from scipy import stats

from bort import nets, train
from bort.measure import SCORES, evaluate
from bort.reproduce import Result, Trained, get
from bort.reproduce._areas import METHODS, areas_of, difference
from bort.reproduce._cells import Pair, interval, verdict

RECIPES = {name: train.recipes.get(name) for name in train.recipes.names()}


def result(table, recipe, accuracy=50.0, *, seed=0, note="", failed="", quick=False, **metrics):
    recipe = replace(recipe, seed=seed)
    measured = {} if failed else {"accuracy": accuracy / 100, "residual": 0.5, **metrics}
    file = f"{table}/{recipe.name}-seed{seed}.json"
    return Result(table, recipe, measured, file, note=note, failed=failed, quick=quick)


def line(text, start):
    return next(candidate for candidate in text.splitlines() if candidate.startswith(start))


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
    assert "| – | 50.00 (n = 1) | – | quick, embedded digits |" in line(text, "| mnist5k")
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


def modern(row, deletion, insertion, seed):
    recipe = next(e.recipe for e in get("modern").experiments(False) if e.recipe.name == row)
    areas = {
        f"{score} {end}": [value, 0.01]
        for score in SCORES
        for end, value in (("deletion", deletion), ("insertion", insertion))
    }
    metrics = {"methods": dict.fromkeys(METHODS, areas), "random_map": areas, "images": 1000, "masks": 1000}
    return result("modern", recipe, 40.0, seed=seed, similarity={name: [0.1, 0.3] for name in METHODS}, **metrics)


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
    assert len(looks) == len(lines) == 8


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


def test_areas_of_modern_networks_are_paired_by_seed():
    baseline, bort = (e.recipe.name for e in get("modern").experiments(False) if "deit-s" in e.recipe.name)
    rows = [
        modern(baseline, 0.2, 0.3, 0),
        modern(baseline, 0.3, 0.5, 1),
        modern(bort, 0.1, 0.5, 0),
        modern(bort, 0.2, 0.6, 1),
    ]
    text = get("modern").section(rows)
    assert (
        "| ig | 0.250 | 0.150 | -0.100 (n = 2) | 0.400 | 0.550 | +0.150 [-0.485, +0.785] (n = 2) "
        "| 0.10 / 0.30 | 0.10 / 0.30 |"
    ) in text
    assert "| random map | 0.250 |" in text
    assert "+0.150 [-0.485, +0.785] (n = 2) |" in line(get("modern").summary(rows), "| deit-s-bort-a | ig |")


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


def areas(deletion, insertion, error=0.01):
    cells = {f"{score} deletion": [deletion, error] for score in ("relative", "logit", "probability")}
    cells |= {f"{score} insertion": [insertion, error] for score in ("relative", "logit", "probability")}
    return {"methods": {"sat": cells}, "images": 8, "masks": 50}


def table3(row, *arguments, seed=0):
    return result("table3", RECIPES[row], seed=seed, **areas(*arguments))


def test_better_worse_or_equal_beside_the_paper():
    text = get("table3").section(
        [
            table3("mnist-acnn-small-sgd", 0.5, 0.5),
            table3("mnist-acnn-small-bort-s", 0.45, 0.45),
            table3("cifar10-acnn-small-sgd", 0.5, 0.5, 0.03),
            table3("cifar10-acnn-small-bort-s", 0.45, 0.55),
            table3("tiny-imagenet-acnn-base-sgd", 0.5, 0.5),
        ]
    )
    relative, probability, logit = text.split("## Score: ")[1:]
    cells = "0.500 | 0.450 | better | 0.26 → 0.05 | 0.500 | 0.450 | worse | 0.61 → 0.80"
    assert line(relative, "| mnist") == f"| mnist-acnn-small | sat | {cells} |"
    assert line(relative, "- mnist").endswith("here and in the paper: sat deletion; in the paper only: sat insertion.")
    cells = "0.500 | 0.450 | = | 0.31 → 0.27 | 0.500 | 0.550 | = | 0.76 → 0.81"
    assert line(relative, "| cifar10") == f"| cifar10-acnn-small | sat | {cells} |"
    assert line(probability, "| mnist") == "| mnist-acnn-small | sat | 0.500 | 0.450 | better | 0.500 | 0.450 | worse |"
    assert logit.startswith("logit")
    assert "tiny-imagenet-acnn-base" not in relative, "one network without the other is no comparison"


@pytest.mark.filterwarnings("ignore:The map of cam is the same number", "ignore:.*relative score")
def test_a_network_without_a_relative_score_is_neither_better_nor_worse():
    """With all classes dead every logit is 0."""
    dead = nets.create("lenet", last="relu")
    torch.nn.init.constant_(dead.head.bias, -100.0)
    of_dead = areas_of(dead, torch.rand(2, 1, 28, 28), ("cam",), {})["cam"]
    assert of_dead["relative deletion"] == of_dead["relative insertion"] == [None, None]
    json.dumps(of_dead, allow_nan=False)

    table3s = [table3(f"mnist-acnn-small-{optim}", 0.1, 0.5) for optim in ("sgd", "bort-s")]
    cells = table3s[1].metrics["methods"]["sat"]
    cells |= {"relative deletion": [None, None], "relative insertion": [None, None]}
    relative, probability, _ = get("table3").section(table3s).split("## Score: ")[1:]
    assert "| sat | 0.100 | – | – | 0.26 → 0.05 | 0.500 | – | – | 0.61 → 0.80 |" in line(relative, "| mnist")
    assert "- mnist" not in relative, "no cell can be compared with the paper's"
    assert "| sat | 0.100 | 0.100 | = |" in line(probability, "| mnist")
    assert "| 0 better, 0 worse of 0 |" in line(get("table3").summary(table3s), "| mnist")

    baseline, bort = (e.recipe.name for e in get("modern").experiments(False) if "deit-s" in e.recipe.name)
    rows = [modern(row, 0.2, 0.3, seed) for row in (baseline, bort) for seed in (0, 1)]
    for result_ in rows:
        metrics = result_.metrics
        metrics["methods"] = {name: dict(areas) for name, areas in metrics["methods"].items()}
        metrics["methods"]["ig"] |= {"relative deletion": [None, None]}
        metrics["similarity"]["ig"] = [None, None]
    text = get("modern").section(rows).split("### Score: relative")[1]
    assert line(text, "| ig").startswith("| ig | – | – | – |")
    assert line(text, "| ig").endswith("| – | – |")


def test_figures_without_a_number():
    """No pair is told apart, and no feature comes back."""
    experiment = next(e for e in get("figures").experiments(True) if not e.name)
    layer = {"sigma": [0.5, 1.5], "ratio": None, "cosine": None}
    adversary = {"path": "source", "k": 1, "pairs": 4, "map_success": None, "image_success": None}
    adversary |= {"like_source": None, "like_target": None}
    numbers = {"layers": [layer], "reconstruction": {"all": None}, "adversaries": [adversary]}
    rows = [result("figures", experiment.recipe, seed=seed, **numbers) for seed in (0, 1)]
    assert "| 0.50 … 1.50 |  |  | all: – |" in get("figures").section(rows)
    assert "| source | 1 | – | – | – | – |" in get("figures").section(rows)
    assert "| – | 2 |" in get("figures").summary(rows)
    get("figures").charts["trade-off"](rows)


def test_networks_that_see_the_same_images_are_compared_image_by_image(tmp_path):
    """Images that are hard for both make the error of a mean large, and that of the difference not."""
    x = torch.rand(8, 1, 28, 28)
    names = [f"mnist-acnn-small-{optim}" for optim in ("sgd", "bort-s")]
    for seed, name in enumerate(names):
        measured = areas_of(seeded_lenet(seed), x, ("cam",), {}, by_image=True)
        result("table3", RECIPES[name], methods=measured, images=8, masks=50).write(tmp_path)
    read = Result.read(tmp_path / "table3")
    bort, sgd = read
    for area in ("logit deletion", "probability insertion"):
        mean, error = difference([sgd], [bort], "cam", area)
        score, end = area.split()
        before, after = (
            getattr(evaluate(model, x, ("cam",), warn=False)["cam"].scores[score], end).double()
            for model in map(seeded_lenet, (0, 1))
        )
        assert mean == pytest.approx((after - before).mean().item(), abs=1e-3)
        assert error == pytest.approx((after - before).std().item() / 8**0.5, rel=0.02)
    assert "mostly too cautious" not in get("table3").section(read)
    assert "Of mnist-acnn-small the areas" in get("table3").section([table3(name, 0.1, 0.5) for name in names])


def seeded_lenet(seed):
    """Whose logits are as large as those of a trained one."""
    torch.manual_seed(seed)
    net = nets.create("lenet")
    torch.nn.init.normal_(net.head.weight, std=10)
    return net


def test_only_images_with_a_score_of_both_are_compared():
    def row(name, *values):
        cells = areas(0.5, 0.5)["methods"]["sat"]
        by_image = {"relative deletion": " ".join(map(str, values))}
        metrics = {"methods": {"sat": cells | {"by_image": by_image}}, "images": 4, "masks": 50}
        return result("table3", RECIPES[f"mnist-acnn-small-{name}"], **metrics)

    sgd, bort = row("sgd", 0.1, 0.5, "nan", 0.9), row("bort-s", 0.2, 0.7, 0.4, "nan")
    mean, error = difference([sgd], [bort], "sat", "relative deletion")
    assert (mean, error) == pytest.approx((0.15, 0.05))
    assert difference([sgd], [row("bort-s", "nan", "nan", 1, "nan")], "sat", "relative deletion") is None
    unpaired = difference([sgd], [table3("mnist-acnn-small-bort-s", 0.4, 0.5)], "sat", "relative deletion")
    assert unpaired == pytest.approx((-0.1, 2**0.5 * 0.01))


def test_areas_are_averaged_over_seeds():
    rows = [table3(f"mnist-acnn-small-{optim}", 0.1, 0.5, seed=0) for optim in ("sgd", "bort-s")]
    rows += [table3(f"mnist-acnn-small-{optim}", 0.4, 0.5, seed=1) for optim in ("sgd", "bort-s")]
    text = get("table3").section(rows)
    assert "| sat | 0.250 | 0.250 | = |" in line(text, "| mnist-acnn-small |")
    assert "mnist-acnn-small 50.00 ± 0.00 (n = 2) → 50.00 ± 0.00 (n = 2)" in text


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
