"""Pages of Table 3, of the paper's networks and of DeiT-S and ResNet-50, from results that are made up."""

import json

import pytest
import torch

from bort import nets
from bort.measure import SCORES, evaluate
from bort.reproduce import Result, get
from bort.reproduce._areas import METHODS, areas_of, difference, why_unpaired
from tests.reproduce.small import RECIPES, line, result


def modern(row, deletion, insertion, seed):
    recipe = next(e.recipe for e in get("modern").experiments(False) if e.recipe.name == row)
    areas = {
        f"{score} {end}": [value, 0.01]
        for score in SCORES
        for end, value in (("deletion", deletion), ("insertion", insertion))
    }
    metrics = {"methods": dict.fromkeys(METHODS, areas), "random_map": areas, "images": 1000, "masks": 1000}
    return result("modern", recipe, 40.0, seed=seed, similarity={name: [0.1, 0.3] for name in METHODS}, **metrics)


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


def by_image(name, *values, seed=0):
    """With an area under deletion by the relative score for each image."""
    cells = areas(0.5, 0.5)["methods"]["sat"]
    kept = {"relative deletion": " ".join(map(str, values))}
    metrics = {"methods": {"sat": cells | {"by_image": kept}}, "images": len(values), "masks": 50}
    return result("table3", RECIPES[f"mnist-acnn-small-{name}"], seed=seed, **metrics)


def test_only_images_with_a_score_of_both_are_compared():
    sgd, bort = by_image("sgd", 0.1, 0.5, "nan", 0.9), by_image("bort-s", 0.2, 0.7, 0.4, "nan")
    mean, error = difference([sgd], [bort], "sat", "relative deletion")
    assert (mean, error) == pytest.approx((0.15, 0.05))
    assert difference([sgd], [by_image("bort-s", "nan", "nan", 1, "nan")], "sat", "relative deletion") is None
    unpaired = difference([sgd], [table3("mnist-acnn-small-bort-s", 0.4, 0.5)], "sat", "relative deletion")
    assert unpaired == pytest.approx((-0.1, 2**0.5 * 0.01))


def test_a_seed_of_one_network_alone_takes_no_pair_apart():
    sgd = [by_image("sgd", 0.1, 0.5), by_image("sgd", 0.9, 0.9, seed=1)]
    bort = [by_image("bort-s", 0.2, 0.7)]
    assert difference(sgd, bort, "sat", "relative deletion") == pytest.approx((0.15, 0.05))
    assert why_unpaired(sgd, bort) == ""


@pytest.mark.parametrize(
    ("bort", "reason"),
    [
        (by_image("bort-s", 0.2, 0.7, seed=1), "no seed was measured with both networks"),
        (table3("mnist-acnn-small-bort-s", 0.4, 0.5), "the areas of single images are not kept"),
        (by_image("bort-s", 0.2, 0.7, 0.4), "not all seeds have the same number of images"),
    ],
)
def test_the_reason_why_images_are_not_paired(bort, reason):
    assert why_unpaired([by_image("sgd", 0.1, 0.5)], [bort]) == reason


@pytest.mark.parametrize("seed", [0, 1])
def test_the_page_says_why_images_are_not_paired(seed):
    sgd, bort = table3("mnist-acnn-small-sgd", 0.5, 0.5), table3("mnist-acnn-small-bort-s", 0.5, 0.5, seed=seed)
    sentence = f"Of mnist-acnn-small {why_unpaired([sgd], [bort])}: errors are those of different images"
    assert sentence in get("table3").section([sgd, bort])


def test_areas_are_averaged_over_seeds():
    rows = [table3(f"mnist-acnn-small-{optim}", 0.1, 0.5, seed=0) for optim in ("sgd", "bort-s")]
    rows += [table3(f"mnist-acnn-small-{optim}", 0.4, 0.5, seed=1) for optim in ("sgd", "bort-s")]
    text = get("table3").section(rows)
    assert "| sat | 0.250 | 0.250 | = |" in line(text, "| mnist-acnn-small |")
    assert "mnist-acnn-small 50.00 ± 0.00 (n = 2) → 50.00 ± 0.00 (n = 2)" in text


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
    assert "+0.150 [-0.485, +0.785] (n = 2) |" in line(get("modern").summary(rows), "| DeiT-S, AdamW → Bort-A | ig |")
