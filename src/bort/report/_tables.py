"""Tables of a page, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from bort.measure._deletion import SCORES
from bort.report._subject import Missing, Subject


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], caption: str, *, words: int = 1, wrap: bool = False
) -> str:
    """The first ``words`` columns are text, the others numbers."""

    def line(row: Sequence[str], tag: str) -> str:
        cells = []
        for column, cell in enumerate(row):
            kind = "" if column < words else ' class="number"'
            name = "th" if tag == "th" or column == 0 else "td"
            scope = ' scope="col"' if tag == "th" else ' scope="row"' if column == 0 else ""
            cells.append(f"<{name}{scope}{kind}>{escape(cell)}</{name}>")
        return f"<tr>{''.join(cells)}</tr>"

    kind = ' class="wrap"' if wrap else ""
    body = "\n".join(line(row, "td") for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table{kind}>\n'
        f"<thead>{line(header, 'th')}</thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def how(subjects: list[Subject]) -> str:
    """What was trained and how: one column a run."""
    rows: list[tuple[str, ...]] = []

    def row(name: str, values: list[str]) -> None:
        if any(value != "–" for value in values):
            rows.append((name, *values))

    recipes = [s.run.recipe for s in subjects]
    row("recipe", [r.name for r in recipes])
    row("network", [r.net.name + (f" × {r.net.width:g}" if r.net.width != 1 else "") for r in recipes])
    row("parameters", [f"{sum(p.numel() for p in s.model.parameters()):,}" for s in subjects])
    row("data", [r.data.name for r in recipes])
    row("optimizer", [r.optim.name for r in recipes])
    row("momentum", [f"{r.optim.momentum:g}" if r.optim.momentum else "–" for r in recipes])
    row("penalty at each", [f"{r.optim.every}th step" if r.optim.every > 1 else "–" for r in recipes])
    row("schedule", [r.optim.schedule if r.optim.schedule != "constant" else "–" for r in recipes])
    row("inputs", ["as they are" if not r.data.normalise else "–" for r in recipes])
    row("learning rate", [f"{r.optim.lr:g}" for r in recipes])
    row("λ", [f"{r.optim.constraint:g}" if r.optim.name.startswith("bort") else "–" for r in recipes])
    row("weight decay", [f"{r.optim.weight_decay:g}" for r in recipes])
    row(
        "batch, epochs",
        [f"{r.batch}, {len(s.run.history)} of {r.epochs}" for r, s in zip(recipes, subjects, strict=True)],
    )
    row("seed", [str(r.seed) for r in recipes])
    row("test accuracy", ["–" if s.run.accuracy is None else f"{s.run.accuracy:.2%}" for s in subjects])
    row("paper's accuracy", [f"{r.paper.top1:.2f}%" if r.paper else "–" for r in recipes])
    row("seconds", [f"{s.run.history[-1]['seconds']:.1f}" if s.run.history else "–" for s in subjects])
    starts = [s.run.environment[-1] if s.run.environment else {} for s in subjects]
    row("hardware", [str(start.get("hardware", "–")) for start in starts])
    row("torch", [str(start.get("versions", {}).get("torch", "–")) for start in starts])
    row("commit", [str(start.get("commit", "–")) for start in starts])
    return table(
        ("", *(s.name for s in subjects)), rows, "What was trained and how", words=1 + len(subjects), wrap=True
    )


def audit(subject: Subject) -> str:
    layers = list(subject.audit)
    header = ("layer", "matrix", "invertible", "σ", "‖row‖", "residual", "ratio", "floor", "cosine", "claim")
    rows = [
        (
            layer.name,
            f"{layer.shape[0]} × {layer.shape[1]}" + (f" × {layer.blocks}" if layer.blocks > 1 else ""),
            "yes" if layer.invertible else "no, wide",
            f"{layer.sigma[0]:.2f} … {layer.sigma[1]:.2f}",
            f"{layer.row_norms[0]:.2f} … {layer.row_norms[1]:.2f}",
            f"{layer.residual:.3f}",
            *(_number(v) for v in (layer.ratio, layer.floor or None, layer.cosine, layer.claim)),
        )
        for layer in layers
    ]
    return table(header, rows, f"Audit of {subject.name}", words=3)


def deletion(subjects: list[Subject], methods: list[str]) -> str:
    """tab:insertion_deletion of these runs, by all scores."""
    found = {s.name: s.evaluate(methods) for s in subjects}
    if not found:
        raise Missing("no methods")
    header = ("method", "run", *(f"{score} {end}" for score in SCORES for end in ("del. ↓", "ins. ↑")))
    rows = [
        (method, name, *(f"{each[method].scores[score].means[which]:.3f}" for score in SCORES for which in (0, 1)))
        for method in methods
        for name, each in found.items()
    ]
    return table(header, rows, "Areas under deletion and insertion curves", words=2)


def _number(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.2f}"
