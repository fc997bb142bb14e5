"""One self-contained page out of runs, and the same figures as PNG and SVG beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from bort import __version__, explain
from bort._environment import describe
from bort._files import write_atomically
from bort.report import _tables
from bort.report._figures import FIGURES, draw
from bort.report._illustration import Illustration
from bort.pictures import GRID, INK, MUTED, to_png, to_svg
from bort.report._subject import Missing, Say, Subject

_VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--grid)"}


@dataclass(frozen=True)
class Report:
    page: str
    illustrations: list[Illustration]
    missing: dict[str, str]
    """Figures that make no sense for these runs, and why."""

    def write(self, file: Path) -> list[Path]:
        """The page, and NAME-figures/ beside it; whole files only."""
        folder = file.with_name(f"{file.stem}-figures")
        folder.mkdir(parents=True, exist_ok=True)
        for old in FIGURES:  # of an earlier report: not what this page shows
            for ending in (".png", ".svg"):
                (folder / f"{old}{ending}").unlink(missing_ok=True)
        written = []
        for each in self.illustrations:
            for ending, content in ((".png", to_png(each.figure)), (".svg", _alone(to_svg(each.figure)))):
                path = folder / f"{each.name}{ending}"
                write_atomically(path, content)
                written.append(path)
        write_atomically(file, self.page)
        return [file, *written]


def report(subjects: list[Subject], say: Say | None = None) -> Report:
    """Everything about some runs that makes sense for them."""
    illustrations, missing = [], {}
    for number, name in enumerate(FIGURES):
        if say is not None:
            say("report", number, len(FIGURES))
        try:
            illustrations.append(draw(name, subjects, say))
        except Missing as reason:
            missing[name] = str(reason)
    if say is not None:
        say("report", len(FIGURES), len(FIGURES))
    return Report(_page(subjects, illustrations, missing), illustrations, missing)


def _page(subjects: list[Subject], illustrations: list[Illustration], missing: dict[str, str]) -> str:
    title = "Inside " + " and ".join(s.name for s in subjects)
    recipe = subjects[0].run.recipe
    sections = [
        ("how", "What was trained and how", _section("how", "What was trained and how", "", _tables.how(subjects)))
    ]
    audit = ("audit", "The audit", _audit(subjects))
    for number, each in enumerate(illustrations):
        if each.name != "training" and audit not in sections:
            sections.append(audit)
        extra = ""
        if each.name == "deletion":
            extra = _tables.deletion(subjects, explain.names())
        body = f"<figure>{_inline(each, number)}</figure>{extra}"
        sections.append((each.name, each.title, _section(each.name, each.title, each.paper, body, each.look)))
    facts = describe(recipe.seed)
    torch = facts["versions"]["torch"]
    where = f"bort {__version__}, commit {facts['commit']}, {facts['hardware']}, torch {torch}, {facts['date']}"
    left_out = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in missing.items())
    css = files("bort.report").joinpath("page.css").read_text()
    links = "\n".join(f'<a href="#{name}" title="{escape(words)}">{name}</a>' for name, words, _ in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{escape(title)}</title>
<style>
{css}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>{escape(" and ".join(dict.fromkeys(s.run.recipe.net.name for s in subjects)))} on {escape(recipe.data.name)}</p>
<ul class="ends">{"".join(_end(subject) for subject in subjects)}</ul>
<nav aria-label="Contents">{links}</nav>
</header>
<main>
{"".join(section for _, _, section in sections)}
{f'<section id="missing"><h2>Not shown</h2><ul>{left_out}</ul></section>' if left_out else ""}
</main>
<footer><p>Made by {escape(where)}. Figures belong to the runs' newest checkpoints; test images, where there are any,
are drawn evenly from the test set.</p></footer>
</body>
</html>
"""


def _end(subject: Subject) -> str:
    run = subject.run
    accuracy = "–" if run.accuracy is None else f"{run.accuracy:.1%}"
    ratio = "no ratio without test images" if subject.mean_ratio is None else f"mean ratio {subject.mean_ratio:.2f}"
    return f"<li>{escape(subject.name)}<strong>{accuracy}</strong><span>{ratio}</span></li>"


def _audit(subjects: list[Subject]) -> str:
    look = (
        "What is true of each layer. A wide one cannot be inverted; σ and the rows of a wide one are 1 on the constraint; "
        "the ratio is the part of its input that is lost; the cosine is how much a weight looks like what excites it most "
        "(Definition 1), the claim what its activations alone would say."
    )
    body = "".join(f"<h3>{escape(s.name)}</h3>{_tables.audit(s)}" for s in subjects)
    return _section("audit", "The audit", "section 4.2", body, look)


def _section(name: str, title: str, paper: str, body: str, look: str = "") -> str:
    small = f"<small>{escape(paper)}</small>" if paper else ""
    words = f'<p class="look">{escape(look)}</p>' if look else ""
    return f'<section id="{name}"><h2>{escape(title)}{small}</h2>{words}{body}</section>\n'


def _inline(each: Illustration, number: int) -> str:
    """The SVG in the page's own colours, with a description, and with only those identifiers that it refers to."""
    svg = to_svg(each.figure)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))

    def change(match: re.Match[str]) -> str:  # of a tag: names of runs stand between tags, and may be anything
        tag = match[0]
        for colour, variable in _VARIABLES.items():
            tag = tag.replace(colour, variable)
        tag = re.sub(r' id="([^"]+)"', lambda m: f' id="f{number}-{m[1]}"' if m[1] in used else "", tag)
        return re.sub(r'(href="|url\()#([^")]+)', rf"\1#f{number}-\2", tag)

    svg = re.sub(r"<[^>]+>", change, svg)
    # A style inside a page would hold for the whole page.
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(each.alt)}" ', 1)
    return f'<div class="wide" tabindex="0" role="region" aria-label="{escape(each.title)}">{svg}</div>'


def _alone(svg: str) -> str:
    return '<?xml version="1.0" encoding="utf-8"?>\n' + svg
