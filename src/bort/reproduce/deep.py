"""A deep plain network on the built-in digits: ACNN-Base, twelve convolutions with a ReLU each and no normalisation layers.
At σ = 1 each ReLU halves the signal's energy; the target WᵀW = 2·I makes up for that."""

from __future__ import annotations

from dataclasses import replace

from bort import train
from bort.reproduce._cells import accuracy_cell, by_row, file_links, text_and_table
from bort.reproduce._measure import classes
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Table
from bort.train.recipes import Net


def experiments(quick: bool) -> list[Experiment]:
    base = train.recipes.get("mnist5k-lenet-sgd")
    base = replace(base, net=Net("acnn-base", {"width": 0.05 if quick else 0.5}), epochs=1 if quick else 10)
    sgd = replace(base.optim, weight_decay=0.001)
    bort = replace(sgd, name="bort-s", constraint=0.1)
    return [
        Experiment(replace(base, name=f"mnist5k-acnn-base-{name}", optim=optim), classes, note)
        for name, optim, note in (
            ("sgd", sgd, "SGD"),
            ("bort-s", bort, "Bort-S, λ 0.1"),
            ("bort-s-lambda-0.01", replace(bort, constraint=0.01), "Bort-S, λ 0.01"),
            ("bort-s-scale-2", replace(bort, scale=2.0), "Bort-S, λ 0.1, WᵀW = 2·I"),
        )
    ]


def section(results: list[Result]) -> str:
    rows = []
    for name, seeds in by_row(results).items():
        metrics = [result.metrics for result in seeds if not result.failed]
        accuracies = ", ".join(f"{100 * m['accuracy']:.2f}" for m in metrics)
        accuracies += ", failed" if len(metrics) < len(seeds) else ""
        dead = ", ".join(str(m["dead_classes"]) for m in metrics) or "–"
        sigma = "–"
        if metrics:
            sigma = f"{min(m['sigma'][0] for m in metrics):.2f} … {max(m['sigma'][1] for m in metrics):.2f}"
        rows.append((name, seeds[0].note, accuracy_cell(seeds), accuracies, dead, sigma, file_links(seeds)))
    recipe = results[0].recipe
    text = (
        "`bort reproduce deep`. ACNN-Base: twelve convolutions with a ReLU each, no normalisation layers. "
        f"{recipe.net.options['width']:g} times as wide, on the {recipe.data.name} digits, {recipe.epochs} epochs, batch "
        f"{recipe.batch}, lr 0.01, momentum 0.9, weight decay {recipe.optim.weight_decay:g}. Its last ReLU lets "
        "classes die."
    )
    header = ("row", "", "accuracy %", "by seed", "dead classes", "σ", "files")
    return text_and_table(text, header, rows)


def summary(results: list[Result]) -> str:
    accuracies = "; ".join(f"{seeds[0].note} {accuracy_cell(seeds)}" for seeds in by_row(results).values())
    return f"ACNN-Base, twelve ReLUs and no normalisation, on built-in digits, accuracy in per cent: {accuracies}.\n"


TABLE = Table("A deep plain network", experiments, section, summary, seeds=(0, 1, 2))
