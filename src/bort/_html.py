"""Tables and images as HTML: for the report's page, and for what notebooks show."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

# Notebooks align all cells to the right and stripe the rows. Their own colours stay, so that dark themes stay readable.
_NOTEBOOK_CSS = (
    "div.bort{overflow-x:auto}"
    "div.bort th,div.bort td{text-align:left;vertical-align:top}"
    "div.bort .number{text-align:right}"
    "div.bort table.pictures tr{background:none}"
    "div.bort table.pictures th,div.bort table.pictures td{padding:2px 4px;text-align:center;vertical-align:middle}"
    "div.bort table.pictures img{image-rendering:pixelated;max-width:none;margin:auto}"
)


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str,
    *,
    numbers: Sequence[int] = (),
    meanings: Sequence[str] = (),
    kind: Literal["", "wrap", "dense"] = "",
) -> str:
    """The columns in ``numbers`` are right-aligned. The first cell of a row is its header. ``meanings`` explain the columns
    where the mouse rests on their headers. ``kind`` is "wrap" for long texts, "dense" for many columns."""

    def line(row: Sequence[str], *, is_header: bool) -> str:
        cells = []
        for column, text in enumerate(row):
            name = "th" if is_header or column == 0 else "td"
            attributes = ' scope="col"' if is_header else ' scope="row"' if column == 0 else ""
            if column in numbers:
                attributes += ' class="number"'
            if is_header and meanings:
                attributes += f' title="{escape(meanings[column])}"'
            cells.append(f"<{name}{attributes}>{escape(text)}</{name}>")
        return f"<tr>{''.join(cells)}</tr>"

    class_ = f' class="{kind}"' if kind else ""
    body = "\n".join(line(row, is_header=False) for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table{class_}>\n'
        f"<thead>{line(header, is_header=True)}</thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def image(content: bytes, kind: Literal["png", "svg+xml"], alt: str, width: int | None = None) -> str:
    """An <img> that carries its file. Unlike an <svg> element it brings no styles and identifiers into the page around it,
    and viewers that clean the HTML of notebooks keep it."""
    size = f' width="{width}"' if width else ""
    return f'<img src="data:image/{kind};base64,{b64encode(content).decode()}" alt="{escape(alt)}"{size}>'


def paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def notebook(*parts: str) -> str:
    """HTML for ``_repr_html_``."""
    return f'<div class="bort"><style>{_NOTEBOOK_CSS}</style>{"".join(parts)}</div>'
