"""RESULTS.md out of results/**/*.json: every figure of it can be traced to a file, and by that to a command and a commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bort.reproduce import _result
from bort.reproduce._cells import (
    Results,
    accuracy,
    by_row,
    cell,
    files,
    mean,
    paper_top1,
    residual,
    section,
    status,
)
from bort.reproduce._evidence import figures, table3
from bort.reproduce._which_lenet import lenet

_HEAD = """# Results

Made by `bort results` out of the files beside it; do not edit. Each file has the command, commit, versions, hardware, seed
and data hash of its figures. *n* is the number of seeds, ± their standard deviation. Runs that failed stay in the tables.
*residual* is the root mean square of σ² − 1 over a layer's singular values σ, in its worst layer: 0 on the constraint.
"""


def results(folder: Path) -> str:
    """The whole text."""
    found = {table: _result.read(folder / table) for table in _SECTIONS}
    parts = [write(found) for table, write in _SECTIONS.items() if found[table]]
    return "\n".join([_HEAD, *(parts or ["There are no results yet: `bort reproduce table1`.\n"])])


def _table1(found: Results) -> str:
    rows = []
    for name, runs in by_row(found).items():
        paper = paper_top1(name)
        mean, shown = accuracy(runs)
        difference = f"{mean - paper:+.2f}" if paper is not None and mean is not None else "–"
        rows.append((name, cell(paper), shown, difference, status(runs, mean, paper), residual(runs), files(runs)))
    header = ("row", "paper %", "ours %", "difference", "status", "residual", "files")
    text = _QUICK if found[0]["quick"] else _TABLE1
    return section("Table 1: accuracy on MNIST and CIFAR-10", text, header, rows)


_QUICK = "`bort reproduce table1 --quick`: the recipes of `bort recipes` on embedded digits. Not the paper's data."
_TABLE1 = (
    "`bort reproduce table1`. ACNN-Small and LeNet, 40 epochs, batch 256, lr 0.01, momentum 0.9, weight decay 0.01, λ 0.1, "
    "inputs normalised by channel. *matches*: within one point of the paper."
)


def _settings(found: Results, table1: Results) -> str:
    """Beside each row the one of Table 1 that it is changed from: the longest name that it begins with."""
    rows = []
    of_paper = by_row(table1)
    for name, runs in by_row(found).items():
        base = max((each for each in of_paper if name.startswith(f"{each}-")), key=len, default="")
        unchanged = accuracy(of_paper[base])[1] if base else "–"
        rows.append((name, runs[0]["note"], unchanged, accuracy(runs)[1], residual(runs), files(runs)))
    text = "`bort reproduce settings`. Rows of Table 1 with one thing changed; with λ 0.01 weight decay too (0.001)."
    header = ("row", "changed", "as in Table 1 %", "changed so %", "residual", "files")
    return section("Other settings", text, header, rows)


def _deep(found: Results) -> str:
    rows = []
    for name, runs in by_row(found).items():
        good = [r["metrics"] for r in runs if not r["failed"]]
        each = ", ".join(f"{100 * m['accuracy']:.2f}" for m in good) + (", failed" if len(good) < len(runs) else "")
        dead = ", ".join(str(m["dead_classes"]) for m in good)
        sigma = f"{min(m['sigma'][0] for m in good):.2f} … {max(m['sigma'][1] for m in good):.2f}" if good else "–"
        rows.append((name, runs[0]["note"], accuracy(runs)[1], each, dead or "–", sigma, files(runs)))
    recipe = found[0]["recipe"]
    text = (
        "`bort reproduce deep`. ACNN-Base: twelve convolutions with a ReLU each, no normalisation layers. "
        f"{recipe['net']['width']:g} times as wide, on the {recipe['data']['name']} digits, {recipe['epochs']} epochs, batch "
        f"{recipe['batch']}, lr 0.01, momentum 0.9, weight decay {recipe['optim']['weight_decay']:g}. Its last ReLU lets "
        "classes die."
    )
    return section(
        "A deep plain network", text, ("row", "", "accuracy %", "by seed", "dead classes", "σ", "files"), rows
    )


def _table2(found: Results) -> str:
    rows = []
    for name, runs in by_row(found).items():
        full = name.replace("tiny-imagenet", "imagenet", 1)
        top5 = [100 * r["metrics"]["top5"] for r in runs if not r["failed"]]
        rows.append((name, accuracy(runs)[1], mean(top5), cell(paper_top1(full)), f"`bort train {full}`", files(runs)))
    text = (
        "`bort reproduce table2`. **Not ImageNet**: 100 classes of Tiny ImageNet at 64 px, the recipes' own augmentation, "
        f"schedule and rates; epochs cut to {found[0]['recipe']['epochs']}, warm-up to 1 and batches to a quarter, for "
        "baseline and Bort alike: too short to judge Bort by. The paper's figures are of ImageNet at 224 px after 300 epochs "
        "and stand beside for the order only; the last command is the full-size row."
    )
    header = ("row", "top-1 % here", "top-5 % here", "paper, ImageNet %", "full size", "files")
    return section("Table 2 in small", text, header, rows)


def _ablation(found: Results) -> str:
    decays = sorted({r["recipe"]["optim"]["weight_decay"] for r in found})
    constraints = sorted({r["recipe"]["optim"]["constraint"] for r in found})
    rows = []
    for decay in decays:
        cells = []
        for constraint in constraints:
            wanted = (decay, constraint)
            runs = [
                r for r in found if (r["recipe"]["optim"]["weight_decay"], r["recipe"]["optim"]["constraint"]) == wanted
            ]
            cells.append(accuracy(runs)[1] if runs else "–")
        rows.append((f"{decay:g}", *cells))
    header = ("weight decay \\ λ", *(f"{c:g}" for c in constraints))
    recipe = found[0]["recipe"]
    text = (
        f"`bort reproduce ablation`. {recipe['net']['name']}, {recipe['epochs']} epochs, the rest as in Table 1; λ 0 is SGD. "
        "Test accuracy in per cent after the last epoch, at a constant rate: single cells can be several points off. "
        f"Files: {files(found)}.\n\n![Test accuracy by weight decay and λ](ablation/grid.png)"
    )
    return section(f"fig:ablation_cifar10: weight decay by λ, on {recipe['data']['name']}", text, header, rows)


_SECTIONS: dict[str, Callable[[dict[str, Results]], str]] = {
    "table1": lambda found: _table1(found["table1"]),
    "lenet": lambda found: lenet(found["lenet"]),
    "settings": lambda found: _settings(found["settings"], found["table1"]),
    "deep": lambda found: _deep(found["deep"]),
    "table2": lambda found: _table2(found["table2"]),
    "table3": lambda found: table3(found["table3"]),
    "figures": lambda found: figures(found["figures"]),
    "ablation": lambda found: _ablation(found["ablation"]),
}
