"""A report: one self-contained page about subjects, and its figures as PNG and SVG beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bort import _html
from bort._files import write_atomically
from bort._sample_sizes import SampleSizes
from bort.pictures import to_png, to_svg
from bort.report._figures import FIGURES, draw
from bort.report._illustration import Illustration
from bort.report._measured import Measured, Say, measured
from bort.report._page import Content, page
from bort.report._verdict import Verdict
from bort.report._verdicts import verdicts
from bort.report._words import capital
from bort.subject import Images, Missing, Subject, of_models

if TYPE_CHECKING:
    from torch import Tensor

_FRAME_LIMIT = 4_000_000
"""Bytes of a page that a notebook shows in a frame: what it shows becomes part of its file."""


@dataclass(frozen=True)
class Report:
    """A page about networks and its figures, as `make` returns it. A notebook shows it.

    Example:
        >>> made = report.Report("<!doctype html>", illustrations=[], missing={"training": "no network has a history"})
        >>> [file.name for file in made.write("report.html")]
        ['report.html']
    """

    page: str
    illustrations: list[Illustration]
    missing: dict[str, str]
    """Figures that make no sense for these subjects, and why."""
    verdicts: list[Verdict] = field(default_factory=list)
    """The paper's claims, with what these subjects say of them."""

    def write(self, file: str | os.PathLike[str]) -> list[Path]:
        """The page, and NAME-figures/ beside it; whole files only."""
        file = Path(file)
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


def make(
    subjects: Sequence[Subject | Measured],
    *,
    sizes: SampleSizes | None = None,
    say: Say | None = None,
    explorer: str | None = None,
) -> Report:
    """Everything about these subjects that makes sense for them; what does not is listed as left out.

    Args:
        subjects: networks that see the same images, see :func:`bort.subject.resolve_all`.
        sizes: how many images, features and masks are looked at.
        say: called with (what, done, total) as the work goes on.
        explorer: the address of an explorer of the same subjects, such as http://localhost:8765, that figures link to.

    Example:
        >>> made = report.make(subject.of_models(nets.create("lenet")))  # without images
        >>> [illustration.name for illustration in made.illustrations]
        ['gram', 'sigma']
    """
    if not subjects:
        raise ValueError("a report needs a subject: name the folder of a run")
    if explorer is not None and (not explorer.startswith(("http://", "https://")) or "?" in explorer):
        raise ValueError(f"explorer={explorer!r}: give its address alone, such as http://localhost:8765")
    prepared = measured(subjects, sizes)
    illustrations, missing = [], {}
    for number, name in enumerate(FIGURES):
        if say is not None:
            say("report", number, len(FIGURES))
        if len(prepared) < FIGURES[name].fewest:
            continue
        try:
            illustrations.append(draw(name, prepared, say=say))
        except Missing as reason:
            missing[name] = str(reason)
    said, unsaid = verdicts(prepared)
    if say is not None:
        say("report", len(FIGURES), len(FIGURES))
    content = Content(prepared, illustrations, missing, said, unsaid, explorer)
    return Report(page(content), illustrations, missing, said)


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
    multi_label: bool = False,
    sizes: SampleSizes | None = None,
    say: Say | None = None,
    explorer: str | None = None,
) -> Report:
    """A report of models, written to ``out`` with its figures beside it::

        bort.report.write({"baseline": a, "bort": b}, images="photographs", out="report.html", size=224, mean=…, std=…)

    Args:
        models, images, labels, size, mean, std, classes, multi_label: see :func:`bort.subject.of_models`.
        out: the page.
        sizes, say, explorer: see `make`.

    Example:
        >>> written = report.write(nets.create("lenet"), out="report.html")  # without images: its weights alone
        >>> from pathlib import Path
        >>> Path("report-figures", "sigma.svg").exists()
        True
    """
    file = Path(out)
    if file.is_dir():
        raise ValueError(f"{file} is a folder; name the page, such as {file / 'report.html'}")
    subjects = of_models(
        models, images, labels=labels, size=size, mean=mean, std=std, classes=classes, multi_label=multi_label
    )
    report = make(subjects, sizes=sizes, say=say, explorer=explorer)
    report.write(file)
    return report
