"""Plain text tables: no dependency, any terminal, pastes well into an issue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Aligned columns under a ruled header; the column numbers in ``right`` are right-aligned."""
    body = [tuple(row) for row in rows]
    widths = [max(len(row[column]) for row in (tuple(header), *body)) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), "  ".join("─" * width for width in widths), *map(line, body)])
