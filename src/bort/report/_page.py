"""The page: verdicts, what to look at, the layers, and last how the networks were trained."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from importlib.resources import files

from bort import __version__
from bort._colours import stylesheet
from bort._environment import describe
from bort.report import _tables
from bort.report._figures import FIGURES, Group
from bort.report._illustration import Address, Illustration
from bort.report._measured import Measured
from bort.report._paper import in_paper
from bort.report._svg import inline
from bort.report._verdict import Verdict
from bort.report._verdict_table import run_name, verdict_table
from bort.report._words import by_reason, joined, plural


@dataclass(frozen=True)
class Content:
    """What the page is made of."""

    subjects: list[Measured]
    illustrations: list[Illustration]
    missing: dict[str, str]
    """Figures that make no sense for these subjects, and why."""
    verdicts: list[Verdict]
    unsaid: dict[str, str]
    """Claims that nothing can be said of, and why."""
    explorer: str | None
    """The address of an explorer, for links."""


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    html: str


def page(content: Content) -> str:
    subjects = content.subjects
    title = f"Inside {joined([s.name for s in subjects])}"
    environment = describe(0)
    made_by = (
        f"bort {__version__}, commit {environment['commit']}, {environment['hardware']}, torch "
        f"{environment['versions']['torch']}, {environment['date']}"
    )
    runs = "".join(f"<li>{run_name(s.name, number)}</li>" for number, s in enumerate(subjects))
    groups = _groups(content)
    css = files("bort.report").joinpath("page.css").read_text() + stylesheet()
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
<ul class="runs">{runs}</ul>
</header>
<main>
{_verdicts(content)}
{_contents(groups)}
{"".join(_group(*group, _about_explorer(content) if group[0] == "part-images" else "") for group in groups)}
</main>
<footer><p>Made by {escape(made_by)}. Figures belong to the runs' newest checkpoints; test images, where there are any,
are drawn evenly from the test set.</p></footer>
</body>
</html>
"""


def _networks_and_data(subjects: list[Measured]) -> str:
    """ "lenet and acnn-small on mnist5k" """
    networks = (s.subject.facts.get("network", type(s.model).__name__) for s in subjects)
    data = subjects[0].subject.data
    return joined(list(dict.fromkeys(networks))) + (f" on {data}" if data else "")


def _verdicts(content: Content) -> str:
    title = "What holds" if len(content.subjects) > 1 else "In numbers"
    table = verdict_table(content.subjects, content.verdicts, content.unsaid)
    return f'<section id="verdicts"><h2>{title}</h2>\n{table}</section>'


Groups = list[tuple[str, str, list[Section]]]
"""(anchor, heading, sections) of each part of the page below the verdicts."""


def _groups(content: Content) -> Groups:
    subjects = content.subjects
    figures: dict[Group, list[Section]] = {"images": [], "layers": [], "training": []}
    for number, illustration in enumerate(content.illustrations):
        figures[FIGURES[illustration.name].group].append(_figure(illustration, number, content))
    look = f"What is true of each layer{_measured_on(subjects[0])}."
    audit = _section("audit", "The audit", in_paper("sec:explain"), _tables.audits(subjects), look)
    trained = figures["training"]
    if any(s.subject.facts for s in subjects):
        title, table = _tables.facts(subjects)
        trained = [*trained, _section("how", title, "", table)]
    groups: Groups = [
        ("part-images", "What to look at", figures["images"]),
        ("part-layers", "Layer by layer", [*figures["layers"], audit]),
        ("part-training", "How it was trained" if len(subjects) == 1 else "How they were trained", trained),
    ]
    if content.missing:
        titles = {FIGURES[name].title: why for name, why in content.missing.items()}
        left_out = "".join(f"<li>{escape(', '.join(what))}: {escape(why)}</li>" for why, what in by_reason(titles))
        missing = Section("missing", "Figures left out", f'<section id="missing"><ul>{left_out}</ul></section>')
        groups.append(("part-missing", "Not shown", [missing]))
    return [group for group in groups if group[2]]


def _measured_on(subject: Measured) -> str:
    """The images of the audit's last columns, if there are any."""
    if subject.mean_ratio is None:
        return ""
    count = len(subject.images(subject.sizes.measured))
    return f"; ratio, cosine, claim and agreement on {plural(count, 'test image')}"


def _contents(groups: Groups) -> str:
    parts = []
    for anchor, heading, sections in groups:
        links = "".join(f'<li><a href="#{s.anchor}">{escape(s.title)}</a></li>' for s in sections)
        parts.append(f'<li><a href="#{anchor}">{heading}</a><ul>{links}</ul></li>')
    return f'<nav aria-label="Contents"><ul>{"".join(parts)}</ul></nav>'


def _group(anchor: str, heading: str, sections: list[Section], words: str = "") -> str:
    return f'<h2 id="{anchor}">{heading}</h2>\n{words}{"".join(section.html for section in sections)}'


def _about_explorer(content: Content) -> str:
    names = "Test images are called test-0, test-1, … here and in the explorer"
    if content.explorer is None:
        text = (
            f"{names}: open the same networks with bort serve (in Python bort.explore), and put what stands behind “In the "
            "explorer” behind its address."
        )
    else:
        text = f"{names} at {content.explorer}, which the links lead to while it runs."
    return f'<p class="note explorer">{escape(text)}</p>\n'


def _section(anchor: str, title: str, paper: str, body: str, look: str = "") -> Section:
    words = f'<p class="look">{escape(look)}</p>' if look else ""
    return Section(anchor, title, f'<section id="{anchor}">{_heading(title, paper)}{words}{body}</section>\n')


def _heading(title: str, paper: str) -> str:
    small = f" <small>{escape(paper)}</small>" if paper else ""
    return f"<h3>{escape(title)}{small}</h3>"


def _figure(illustration: Illustration, number: int, content: Content) -> Section:
    """Words beside the figure, or above it where there is no room."""
    name, title = illustration.name, illustration.title
    caption = _addresses(illustration.addresses, content.explorer)
    html = (
        f'<section id="{name}">{_heading(title, illustration.paper)}\n<div class="beside">'
        f'<p class="look">{escape(illustration.look)}</p>\n<figure>{inline(illustration, number)}{caption}</figure></div>'
    )
    if name == "deletion":
        html += _tables.deletion(content.subjects)
    return Section(name, title, f"{html}</section>\n")


def _addresses(addresses: tuple[Address, ...], explorer: str | None) -> str:
    """Where the explorer shows the same: links if its address is known, else what to put behind it."""
    if not addresses:
        return ""
    if explorer is None:
        first, *others = addresses
        shown = f"{escape(first.words)} <code>{escape(first.query)}</code>"
        shown += "".join(f", {escape(address.words)}" for address in others)
    else:
        start = f"{explorer.rstrip('/')}/"
        shown = ", ".join(f'<a href="{escape(start + a.query)}">{escape(a.words)}</a>' for a in addresses)
    return f"<figcaption>In the explorer: {shown}</figcaption>"
