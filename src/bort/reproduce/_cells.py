"""Rows, cells and sections of RESULTS.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from bort import train

Results = list[dict[str, Any]]


def lost(found: Results) -> str:
    lines = [f"- {r['row']}, seed {r['seed']}: failed, {r['failed']}\n" for r in found if r["failed"]]
    return "".join(lines) + "\n" if lines else ""


def by_row(found: Results) -> dict[str, Results]:
    rows: dict[str, Results] = {}
    for each in found:
        rows.setdefault(each["row"], []).append(each)
    order = {name: number for number, name in enumerate(train.recipes.names())}
    return dict(sorted(rows.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))


def accuracy(runs: Results) -> tuple[float | None, str]:
    good = [100 * r["metrics"]["accuracy"] for r in runs if not r["failed"]]
    return (statistics.mean(good) if good else None), mean(good, failed=len(runs) - len(good))


def mean(values: list[float], failed: int = 0) -> str:
    lost = f", {failed} failed" if failed else ""
    if not values:
        return f"– (n = 0{lost})"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread} (n = {len(values)}{lost})"


def status(runs: Results, mean: float | None, paper: float | None) -> str:
    if runs[0]["quick"]:
        return "quick, embedded digits"
    if mean is None:
        return "failed"
    if paper is None:
        return ""
    return "matches" if abs(mean - paper) <= 1 else ("above the paper" if mean > paper else "below the paper")


def residual(runs: Results) -> str:
    known = [r["metrics"]["residual"] for r in runs if not r["failed"]]
    return f"{statistics.mean(known):.3f}" if known else "–"


def paper_top1(name: str) -> float | None:
    if name not in train.recipes.names():
        return None
    paper = train.recipes.get(name).paper
    return paper.top1 if paper else None


def cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def files(runs: Results) -> str:
    return " ".join(f"[{r['seed'] if len(runs) < 7 else n}]({r['file']})" for n, r in enumerate(runs, 1))


def section(title: str, text: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"## {title}\n\n{text}\n\n{markdown(header, rows)}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
