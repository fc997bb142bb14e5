"""What belongs to a table, what of it is there already, and running the rest."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bort import train
from bort.reproduce import _drawn, _measure, _result
from bort.reproduce._trained import Trained
from bort.train import NotFinite, Recipe, Run, Runtime
from bort.train._schema import Net

Measure = Callable[[Trained], dict[str, Any]]
"""What is trained -> metrics"""


@dataclass(frozen=True)
class Job:
    """A training, and what is measured of it: one result file."""

    table: str
    name: str
    recipe: Recipe
    measure: Measure
    note: str = ""
    """What sets this row apart, for its table."""
    against: Recipe | None = None
    """A second training, to be seen beside the first."""

    def file(self, out: Path) -> Path:
        return out / self.table / f"{self.name}.json"


@dataclass(frozen=True)
class Plan:
    jobs: Callable[[bool, tuple[int, ...]], list[Job]]
    seeds: tuple[int, ...]
    what: str = field(repr=False, default="")


def reproduce(
    table: str,
    out: Path,
    runs: Path,
    runtime: Runtime,
    *,
    quick: bool = False,
    seeds: tuple[int, ...] | None = None,
    only: str = "",
    say: Callable[[str], None] = print,
) -> list[Path]:
    """Run what is missing of a table, going on with what is half done. A training that fails stays in the table as failed."""
    plan = PLANS[table]
    if quick and table == "table2":
        raise ValueError("table2 has no quick form: its networks need the images of a folder, and none are embedded")
    jobs = [job for job in plan.jobs(quick, seeds or ((0,) if quick else plan.seeds)) if only in job.name]
    if not jobs:
        raise ValueError(f"no row of {table} has {only!r} in its name")
    missing = [job for job in jobs if not job.file(out).exists()]
    say(f"{table}: {len(jobs) - len(missing)} of {len(jobs)} results are there, {len(missing)} to make")
    for number, job in enumerate(missing, 1):
        say(f"{table} {number}/{len(missing)}: {job.name}")
        _do(job, out, runs, runtime, quick=quick)
    return [job.file(out) for job in jobs]


def _do(job: Job, out: Path, runs: Path, runtime: Runtime, *, quick: bool) -> None:
    command = f"bort reproduce {job.table} --only {job.name}" + (" --quick" if quick else "")
    if job.recipe.seed not in ((0,) if quick else PLANS[job.table].seeds):
        command += f" --seeds {job.recipe.seed}"
    facts = {"table": job.table, "row": job.recipe.name, "note": job.note, "quick": quick}
    folder, pictures = _folder(job.recipe, runs), job.file(out).with_suffix("")
    failed, metrics, start = "", {}, time.perf_counter()
    try:
        run = _fit(job.recipe, runs, runtime)
        against = _fit(job.against, runs, runtime) if job.against else None
        start = time.perf_counter()
        metrics = job.measure(Trained(run, against, runtime.data_root, _device(runtime), pictures))
    except NotFinite as failure:
        failed = str(failure)
    spent = time.perf_counter() - start
    _result.write(job.file(out), folder, command, job.recipe, spent, failed=failed, metrics=metrics, **facts)


def _fit(recipe: Recipe, runs: Path, runtime: Runtime) -> Run:
    return train.fit(recipe, _folder(recipe, runs), runtime)


def _folder(recipe: Recipe, runs: Path) -> Path:
    return runs / f"{recipe.name}-seed{recipe.seed}"


def _device(runtime: Runtime) -> str:
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if runtime.device == "auto" else runtime.device


def _seeded(recipe: Recipe, seeds: tuple[int, ...]) -> Iterator[Recipe]:
    for seed in seeds:
        yield replace(recipe, seed=seed)


def _job(table: str, recipe: Recipe, measure: Measure, note: str = "") -> Job:
    return Job(table, f"{recipe.name}-seed{recipe.seed}", recipe, measure, note)


def _table1(quick: bool, seeds: tuple[int, ...]) -> list[Job]:
    """All eight cells; quick: the same on the embedded digits, the four that there are."""
    wanted = "mnist5k-" if quick else ""
    rows = [train.recipes.get(n) for n in train.recipes.names()]
    rows = [r for r in rows if (r.name.startswith(wanted) if quick else r.paper is not None and r.paper.table == "1")]
    return [_job("table1", recipe, _measure.training) for row in rows for recipe in _seeded(row, seeds)]


def _settings(quick: bool, seeds: tuple[int, ...]) -> list[Job]:
    """Settings other than the paper's, in rows of their own. A cosine rate helps SGD too: both have it."""
    found = []
    for data, net in (
        (("mnist5k", "lenet"),) if quick else (("cifar10", "lenet"), ("cifar10", "acnn-small"), ("mnist", "acnn-small"))
    ):
        sgd, bort = (train.recipes.get(f"{data}-{net}-{optim}") for optim in ("sgd", "bort-s"))
        for base, name, change, note in (
            (bort, "lambda-0.01", {"constraint": 0.01, "weight_decay": 0.001}, "λ 0.01, weight decay 0.001"),
            (bort, "no-decay", {"weight_decay": 0.0}, "no weight decay"),
            (bort, "every-4", {"every": 4}, "the penalty at each fourth step"),
            (sgd, "decay-0.001", {"weight_decay": 0.001}, "weight decay 0.001"),  # what λ 0.01 is to be held against
            (sgd, "cosine", {"schedule": "cosine"}, "a cosine rate"),
            (bort, "cosine", {"schedule": "cosine"}, "a cosine rate"),
        ):
            optim = replace(base.optim, **change)
            recipe = replace(base, name=f"{base.name}-{name}", optim=optim, paper=None)
            found += [_job("settings", each, _measure.training, note) for each in _seeded(recipe, seeds)]
    return found


def _deep(quick: bool, seeds: tuple[int, ...]) -> list[Job]:
    """ACNN-Base, half as wide, on the embedded digits: twelve convolutions with a ReLU each and no normalisation layers."""
    base = train.recipes.get("mnist5k-lenet-sgd")
    sgd = replace(base.optim, weight_decay=0.001)
    bort = replace(sgd, name="bort-s", constraint=0.1)
    found = []
    for name, optim, note in (
        ("sgd", sgd, "SGD"),
        ("bort-s", bort, "Bort-S, λ 0.1"),
        ("bort-s-lambda-0.01", replace(bort, constraint=0.01), "Bort-S, λ 0.01"),
        ("bort-s-scale-2", replace(bort, scale=2.0), "Bort-S, λ 0.1, WᵀW = 2·I"),
    ):
        net = Net("acnn-base", width=0.05 if quick else 0.5)
        recipe = replace(base, name=f"mnist5k-acnn-base-{name}", net=net, optim=optim, epochs=1 if quick else 10)
        found += [_job("deep", each, _measure.classes, note) for each in _seeded(recipe, seeds)]
    return found


def _lenet(quick: bool, seeds: tuple[int, ...]) -> list[Job]:
    """Which LeNet the paper may have meant: activation, pool, momentum, normalisation, λ; a ReLU at its end."""
    found = []
    names = ("mnist5k",) if quick else ("mnist", "cifar10")
    for data, activation, pool, momentum, normalise in itertools.product(
        names,
        ("relu", "tanh") if quick else ("relu", "tanh", "sigmoid"),
        ("max",) if quick else ("max", "average"),
        (0.9,) if quick else (0.0, 0.9),
        (True,) if quick else (True, False),
    ):
        base = train.recipes.get(f"{data}-lenet-sgd")
        words = f"{activation}-{pool}-momentum{momentum:g}-{'normalised' if normalise else 'raw'}"
        net = replace(base.net, activation=activation, pool=pool)  # type: ignore[arg-type]
        row = replace(base, net=net, data=replace(base.data, normalise=normalise))
        row = replace(row, optim=replace(base.optim, momentum=momentum))
        found += _with_and_without(row, words, (0.0, 0.01, 0.1), seeds, _measure.training)
    for data in names:
        base = train.recipes.get(f"{data}-lenet-sgd")
        row = replace(base, net=replace(base.net, last="relu"))
        found += _with_and_without(
            row, "relu-max-momentum0.9-normalised-relu_at_the_end", (0.0, 0.1), seeds, _measure.classes
        )
    return found


def _with_and_without(
    row: Recipe, words: str, constraints: tuple[float, ...], seeds: tuple[int, ...], measure: Measure
) -> list[Job]:
    """SGD, λ 0, and Bort-S; weight decay is that of Table 1 where λ leaves room for it."""
    found = []
    for constraint in constraints:
        name, decay = ("bort-s", min(0.01, constraint / 10)) if constraint else ("sgd", 0.01)
        optim = replace(row.optim, name=name, constraint=constraint, weight_decay=decay)  # type: ignore[arg-type]
        recipe = replace(row, name=f"{row.data.name}-lenet-{words}-lambda{constraint:g}", optim=optim, paper=None)
        found += [_job("lenet", each, measure, words) for each in _seeded(recipe, seeds)]
    return found


_PAIRS = ("mnist-acnn-small", "cifar10-acnn-small")
_PAIRS_QUICK = ("mnist5k-lenet",)


def _table3(quick: bool, seeds: tuple[int, ...]) -> list[Job]:
    """Deletion and insertion of six methods, baseline and Bort. ACNN-Base stands in for the paper's on ImageNet."""
    measure = _measure.saliency_quick if quick else _measure.saliency
    names = _PAIRS_QUICK if quick else (*_PAIRS, "tiny-imagenet-acnn-base")
    rows = [train.recipes.get(f"{name}-{optim}") for name in names for optim in ("sgd", "bort-s")]
    return [_job("table3", recipe, measure) for row in rows for recipe in _seeded(row, seeds)]


def _figures(quick: bool, seeds: tuple[int, ...]) -> list[Job]:
    """Figures 1 to 3: Gram matrices, ratios, reconstructions, adversaries; in numbers, and drawn with both runs beside
    each other."""
    measure, draw = (_measure.inside_quick, _drawn.pictures_quick) if quick else (_measure.inside, _drawn.pictures)
    found = []
    for name in _PAIRS_QUICK if quick else _PAIRS:
        baseline, bort = (train.recipes.get(f"{name}-{optim}") for optim in ("sgd", "bort-s"))
        found += [_job("figures", recipe, measure) for row in (baseline, bort) for recipe in _seeded(row, seeds)]
        for one, other in zip(_seeded(baseline, seeds), _seeded(bort, seeds), strict=True):
            found.append(Job("figures", f"{name}-drawn-seed{one.seed}", other, draw, against=one))
    return found


_ABLATION_EPOCHS = 10
"""Of Table 1's 40: sixteen trainings of the widest network; the paper does not say how long its own were."""


def _ablation(quick: bool, seeds: tuple[int, ...]) -> list[Job]:
    """fig:ablation_cifar10: weight decay by λ."""
    base = train.recipes.get("mnist5k-lenet-bort-s" if quick else "cifar10-acnn-small-bort-s")
    decays, constraints = ((0.0, 0.01), (0.01, 0.1)) if quick else ((0.0, 0.001, 0.01, 0.1), (0.0, 0.01, 0.1, 1.0))
    found = []
    for decay in decays:
        for constraint in constraints:
            optim = replace(base.optim, weight_decay=decay, constraint=constraint)
            if not constraint:
                optim = replace(optim, name="sgd")
            name = f"{base.name.removesuffix('-bort-s')}-wd{decay:g}-lambda{constraint:g}"
            recipe = replace(base, name=name, optim=optim, epochs=base.epochs if quick else _ABLATION_EPOCHS)
            found += [_job("ablation", each, _measure.training) for each in _seeded(replace(recipe, paper=None), seeds)]
    return found


def _table2(quick: bool, seeds: tuple[int, ...]) -> list[Job]:
    """The 14 rows on 100 classes of Tiny ImageNet at 64 px: not ImageNet."""
    small = [n.replace("imagenet", "tiny-imagenet", 1) for n in train.recipes.names() if n.startswith("imagenet-")]
    rows = [train.recipes.get(name) for name in small]
    return [_job("table2", recipe, _measure.training) for row in rows for recipe in _seeded(row, seeds)]


PLANS = {
    "table1": Plan(_table1, (0, 1, 2), "accuracy on MNIST and CIFAR-10 (tab:mnist_cifar10)"),
    "table2": Plan(_table2, (0, 1), "Table 2 in small: Tiny ImageNet 100 at 64 px, not ImageNet"),
    "table3": Plan(_table3, (0,), "deletion and insertion (tab:insertion_deletion)"),
    "figures": Plan(_figures, (0,), "figures 1 to 3, drawn and in numbers"),
    "ablation": Plan(_ablation, (0,), "weight decay by λ (fig:ablation_cifar10)"),
    "lenet": Plan(_lenet, (0,), "which LeNet the paper may have meant"),
    "deep": Plan(_deep, (0, 1, 2), "a deep plain network, on embedded digits"),
    "settings": Plan(_settings, (0, 1, 2), "settings other than the paper's"),
}
