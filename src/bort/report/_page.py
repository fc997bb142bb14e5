"""One self-contained page about subjects, and the same figures as PNG and SVG beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bort import __version__, _html, explain
from bort._colours import DIFFERENT, colour, stylesheet
from bort._environment import describe
from bort._files import write_atomically
from bort._sample_sizes import SampleSizes
from bort.measure import COLUMNS
from bort.pictures import GRID, INK, MUTED, to_png, to_svg
from bort.report import _tables
from bort.report._figures import FIGURES, draw
from bort.report._illustration import Illustration
from bort.report._measured import Measured, Say, measured
from bort.report._words import capital
from bort.subject import Images, Missing, Subject, of_models

if TYPE_CHECKING:
    from torch import Tensor

_FRAME_LIMIT = 4_000_000
"""Bytes of a page that a notebook shows in a frame: what it shows becomes part of its file."""

_VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--grid)"} | {
    colour(number): f"var(--run-{number})" for number in range(DIFFERENT)
}


@dataclass(frozen=True)
class Report:
    page: str
    illustrations: list[Illustration]
    missing: dict[str, str]
    """Figures that make no sense for these subjects, and why."""

    def write(self, file: Path) -> list[Path]:
        """The page, and NAME-figures/ beside it; whole files only."""
        folder = file.with_name(f"{file.stem}-figures")
        folder.mkdir(parents=True, exist_ok=True)
        for name in FIGURES:  # an earlier report may have had figures that this one does not have
            for ending in (".png", ".svg"):
                (folder / f"{name}{ending}").unlink(missing_ok=True)
        written = []
        for illustration in self.illustrations:
            svg = '<?xml version="1.0" encoding="utf-8"?>\n' + to_svg(illustration.figure)
            for ending, content in ((".png", to_png(illustration.figure)), (".svg", svg)):
                path = folder / f"{illustration.name}{ending}"
                write_atomically(path, content)
                written.append(path)
        write_atomically(file, self.page)
        return [file, *written]

    def __repr__(self) -> str:
        return f"<{self._summary()}>"

    def _repr_html_(self) -> str:
        words = _html.paragraphs([f"{capital(self._summary())}."])
        if len(self.page) > _FRAME_LIMIT:
            return _html.notebook(
                words, _html.paragraphs(["It is too large for a notebook: write(file), and open that."])
            )
        # A frame keeps the page's styles to itself; with this base, links to its sections stay inside it.
        page = self.page.replace("<head>", '<head>\n<base href="about:srcdoc">', 1)
        frame = f'<iframe srcdoc="{escape(page)}" width="100%" height="700" style="border: 0" title="report"></iframe>'
        return _html.notebook(words, frame)

    def _summary(self) -> str:
        figures = ", ".join(illustration.name for illustration in self.illustrations) or "no figures"
        left_out = f"; left out: {', '.join(self.missing)}" if self.missing else ""
        return f"report of {len(self.page) / 1000:,.0f} kB with {figures}{left_out}"


def make(subjects: Sequence[Subject | Measured], *, sizes: SampleSizes | None = None, say: Say | None = None) -> Report:
    """Everything about these subjects that makes sense for them; what does not is listed as left out.

    Args:
        subjects: networks that see the same images, see :func:`bort.subject.resolve_all`.
        sizes: how many images, features and masks are looked at.
        say: called with (what, done, total) as the work goes on.
    """
    if not subjects:
        raise ValueError("a report needs a subject: name the folder of a run")
    prepared = measured(subjects, sizes)
    illustrations, missing = [], {}
    for number, name in enumerate(FIGURES):
        if say is not None:
            say("report", number, len(FIGURES))
        try:
            illustrations.append(draw(name, prepared, say=say))
        except Missing as reason:
            missing[name] = str(reason)
    if say is not None:
        say("report", len(FIGURES), len(FIGURES))
    return Report(_page(prepared, illustrations, missing), illustrations, missing)


def write(
    models: Mapping[str, Any] | Any,
    images: Images | None = None,
    out: str | os.PathLike[str] = "report.html",
    *,
    labels: Sequence[int] | Tensor | None = None,
    size: int | tuple[int, int] | None = None,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    classes: Sequence[str] = (),
    sizes: SampleSizes | None = None,
    say: Say | None = None,
) -> Report:
    """A report of models, written to ``out`` with its figures beside it::

        bort.report.write({"baseline": a, "bort": b}, images="photographs", out="report.html", size=224, mean=…, std=…)

    Args:
        models, images, labels, size, mean, std, classes: see :func:`bort.subject.of_models`.
        out: the page.
        sizes, say: see `make`.
    """
    file = Path(out)
    if file.is_dir():
        raise ValueError(f"{file} is a folder; name the page, such as {file / 'report.html'}")
    subjects = of_models(models, images, labels=labels, size=size, mean=mean, std=std, classes=classes)
    report = make(subjects, sizes=sizes, say=say)
    report.write(file)
    return report


def _page(subjects: list[Measured], illustrations: list[Illustration], missing: dict[str, str]) -> str:
    title = "Inside " + " and ".join(s.name for s in subjects)
    environment = describe(0)
    made_by = (
        f"bort {__version__}, commit {environment['commit']}, {environment['hardware']}, torch "
        f"{environment['versions']['torch']}, {environment['date']}"
    )
    sections = _sections(subjects, illustrations)
    left_out = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in missing.items())
    css = files("bort.report").joinpath("page.css").read_text() + stylesheet()
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
<p>{escape(_networks_and_data(subjects))}</p>
<ul class="ends">{"".join(_end(subject) for subject in subjects)}</ul>
<nav aria-label="Contents">{links}</nav>
</header>
<main>
{"".join(section for _, _, section in sections)}
{f'<section id="missing"><h2>Not shown</h2><ul>{left_out}</ul></section>' if left_out else ""}
</main>
<footer><p>Made by {escape(made_by)}. Figures belong to the runs' newest checkpoints; test images, where there are any,
are drawn evenly from the test set.</p></footer>
</body>
</html>
"""


def _sections(subjects: list[Measured], illustrations: list[Illustration]) -> list[tuple[str, str, str]]:
    """(anchor, title, HTML): the facts, the training curves, the audit, the other figures."""
    sections = []
    if any(s.subject.facts for s in subjects):
        title = "What was trained and how"
        sections.append(("how", title, _section("how", title, "", _tables.facts(subjects))))
    audit = ("audit", "The audit", _audit(subjects))
    for number, illustration in enumerate(illustrations):
        if illustration.name != "training" and audit not in sections:
            sections.append(audit)
        body = f"<figure>{_inline(illustration, number)}</figure>"
        if illustration.name == "deletion":
            body += _tables.deletion(subjects, explain.names())
        name, title = illustration.name, illustration.title
        sections.append((name, title, _section(name, title, illustration.paper, body, illustration.look)))
    return sections if audit in sections else [*sections, audit]


def _networks_and_data(subjects: list[Measured]) -> str:
    """ "lenet and acnn-small on mnist5k" """
    networks = (s.subject.facts.get("network", type(s.model).__name__) for s in subjects)
    data = subjects[0].subject.data
    return " and ".join(dict.fromkeys(networks)) + (f" on {data}" if data else "")


def _end(subject: Measured) -> str:
    """A box with the two numbers that matter most."""
    accuracy = "–" if subject.subject.accuracy is None else f"{subject.subject.accuracy:.1%}"
    ratio = "no ratio without test images" if subject.mean_ratio is None else f"mean ratio {subject.mean_ratio:.2f}"
    return f"<li>{escape(subject.name)}<strong>{accuracy}</strong><span>{ratio}</span></li>"


def _audit(subjects: list[Measured]) -> str:
    tables = "".join(f"<h3>{escape(s.name)}</h3>{_tables.audit(s)}" for s in subjects)
    meanings = "".join(f"<dt>{escape(c.title)}</dt><dd>{escape(c.meaning)}</dd>" for c in COLUMNS)
    body = f'{tables}<dl class="columns">{meanings}</dl>'
    return _section("audit", "The audit", "section 4.2", body, "What is true of each layer.")


def _section(name: str, title: str, paper: str, body: str, look: str = "") -> str:
    small = f"<small>{escape(paper)}</small>" if paper else ""
    words = f'<p class="look">{escape(look)}</p>' if look else ""
    return f'<section id="{name}"><h2>{escape(title)}{small}</h2>{words}{body}</section>\n'


def _inline(illustration: Illustration, number: int) -> str:
    """The SVG in the page's own colours, with a description, and with only those identifiers that it refers to."""
    svg = to_svg(illustration.figure)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))

    def change(match: re.Match[str]) -> str:  # inside tags only: text between tags may be the name of a run
        tag = match[0]
        for on_light_paper, variable in _VARIABLES.items():
            tag = tag.replace(on_light_paper, variable)
        tag = re.sub(r' id="([^"]+)"', lambda m: f' id="f{number}-{m[1]}"' if m[1] in used else "", tag)
        return re.sub(r'(href="|url\()#([^")]+)', rf"\1#f{number}-\2", tag)

    svg = re.sub(r"<[^>]+>", change, svg)
    # A <style> inside an SVG applies to the whole page.
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(illustration.alt)}" ', 1)
    return f'<div class="wide" tabindex="0" role="region" aria-label="{escape(illustration.title)}">{svg}</div>'
