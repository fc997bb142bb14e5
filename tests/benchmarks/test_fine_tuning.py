"""benchmarks/fine_tuning.py: its variants train, its numbers are what it says, and it goes on where it was stopped."""

import json
import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import fine_tuning  # noqa: E402


def tiny():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=8),
        nn.BatchNorm2d(8, momentum=0.01),
        nn.ReLU(),
        nn.Conv2d(8, 16, 1),
        nn.Conv2d(16, 16, 3, groups=16),
        nn.Conv2d(16, 8, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.randn(40, 1, 64, 64, generator=generator), torch.randint(10, (40,), generator=generator)
    return x[:30], labels[:30], x[30:], labels[30:]


@pytest.mark.parametrize("variant", fine_tuning.VARIANTS, ids=lambda variant: variant.name)
def test_every_variant_trains(variant, images):
    run = fine_tuning.train(variant, seed=0, steps=2, lr=0.01, images=images, build=tiny)
    assert run["accuracy"] * 10 == round(run["accuracy"] * 10)
    assert run["sigma_ratio"] >= 1
    assert math.isfinite(run["residual"])
    assert (run["residual"], run["sigma_ratio"]) != (run["before"]["residual"], run["before"]["sigma_ratio"])
    assert run == fine_tuning.train(variant, 0, 2, 0.01, images, build=tiny) | {"seconds": run["seconds"]}, "seeded"


@pytest.mark.parametrize("variant", fine_tuning.VARIANTS[1:], ids=lambda variant: variant.name)
def test_what_is_constrained_and_how(variant):
    optimizer = fine_tuning.optimizer_of(variant, tiny(), steps=7, lr=0.01)
    names = ["3.weight", "5.weight"] if variant.pointwise else ["0.weight", "3.weight", "4.weight", "5.weight"]
    assert sorted(name for name, _ in optimizer.constrained()) == names
    for group in optimizer.param_groups:
        if group["constraint"]:
            assert (group["constraint"], group["scale"]) == (variant.constraint, variant.scale)
            assert group["warmup"] == (7 if variant.warms_up else 0)


def test_a_strong_pull_to_the_initial_scale_equalises_singular_values(images):
    """The residual falls because σ come together, and the mean of σ² stays what it was."""
    variant = fine_tuning.Variant("", constraint=2.0, scale="initial", pointwise=True)
    run = fine_tuning.train(variant, 0, 60, 0.01, images, build=tiny)
    assert run["residual"] < 0.1 < run["before"]["residual"]
    assert run["sigma_ratio"] < 1.2 < run["before"]["sigma_ratio"]


def test_spread_by_hand():
    layers = [torch.tensor([2.0, 1.0]), torch.tensor([3.0, 3.0]), torch.tensor([8.0, 1.0])]
    # residuals to their scales: √((0² + 0.75²)/2), √((8² + 8²)/2) = 8, and √((0² + (1/64 − 1)²)/2), the median
    found = fine_tuning.spread(layers, [4.0, 1.0, 64.0])
    assert found["sigma_ratio"] == pytest.approx(2)
    assert found["residual"] == pytest.approx((63 / 64) / math.sqrt(2))


def test_batches_are_whole_and_of_each_epoch_once():
    batches = list(fine_tuning._batches(130, 5, seed=0))
    assert [len(batch) for batch in batches] == [64] * 5
    assert len(set(torch.cat(batches[:2]).tolist())) == len(set(torch.cat(batches[2:4]).tolist())) == 128


RESULT = {
    "hardware": "a machine",
    "versions": {"torch": "2.10"},
    "settings": {"steps": 200, "lr": 0.01, "batch": 64, "momentum": 0.9, "size": 64},
    "runs": [
        {
            "variant": {"name": name},
            "seed": seed,
            "accuracy": accuracy,
            "sigma_ratio": ratio,
            "residual": 0.5,
            "before": {"sigma_ratio": 4.4, "residual": 0.75},
        }
        for name, seed, accuracy, ratio in [("SGD", 0, 0.9, 4.0), ("SGD", 1, 0.92, 5.0), ("λ 0.1", 0, 0.5, 1.1)]
    ],
}
TABLE = """\
| | test accuracy, % | σmax/σmin | residual |
|---|---|---|---|
| before the training | – | 4.40 | 0.75 |
| SGD | 91.0 ± 1.4 | 4.50 | 0.50 |
| λ 0.1 (1 of 2 seeds) | 50.0 | 1.10 | 0.50 |

200 steps, batch 64, rate 0.01, momentum 0.9, 2 seeds; a machine, torch 2.10."""


def test_the_table_and_its_place():
    assert fine_tuning.markdown(RESULT) == TABLE
    page = (ROOT / "docs/fine-tuning.md").read_text()
    filled = fine_tuning.with_table(page, TABLE)
    assert TABLE in filled
    assert fine_tuning.with_table(filled, TABLE) == filled
    with pytest.raises(ValueError, match="the page needs the lines"):
        fine_tuning.with_table("no marks", TABLE)


def test_it_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    calls = []

    def train(variant, seed, *_, **__):
        calls.append((variant.name, seed))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {"accuracy": 0.9, "sigma_ratio": 4.0, "residual": 0.5, "seconds": 1.0, "before": {}}

    monkeypatch.setattr(fine_tuning, "train", train)
    out = tmp_path / "fine_tuning.json"

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["fine_tuning.py", "--out", str(out), "--seeds", "0", "1", *arguments])
        fine_tuning.main()

    chosen = ("--variants", "SGD", "λ 0.1")
    with pytest.raises(KeyboardInterrupt):
        run(*chosen)
    assert len(json.loads(out.read_text())["runs"]) == 2
    run(*chosen)
    assert calls[3:] == [calls[2], ("λ 0.1", 1)]
    run(*chosen)
    assert len(calls) == 5
    assert "λ 0.1" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="results of other settings"):
        run("--steps", "3")
