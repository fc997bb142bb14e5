"""The documentation as text: its pages, and what stands in code in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")),
    *("examples/plugin/README.md", "src/bort/optim/kernels/README.md", "src/bort/optim/sharded/README.md"),
)

_FENCE = re.compile(r"(?P<mark><!-- run -->\n)?^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"(bort|make|pip|python|pytest|torchrun) ")
_INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    runs: bool = False
    """Marked by ``<!-- run -->`` above it."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """The fenced blocks of all pages in these languages; "" for those that name none."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for fence in _FENCE.finditer(text):
            if fence["language"] in languages:
                line = text.count("\n", 0, fence.start("text"))
                found.append(Block(page, line, fence["language"], fence["text"], fence["mark"] is not None))
    return found


def inline() -> list[Block]:
    """What stands between single backticks."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        without = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
        found += [
            Block(page, without.count("\n", 0, code.start()) + 1, "", " ".join(code[1].split()))
            for code in _INLINE.finditer(without)
        ]
    return found


def commands() -> list[tuple[str, str]]:
    """Where it stands and the text of every command: a line of a block without a language, or code in the text."""
    lines = [
        (str(block), re.sub(r"\s+#.*", "", line))
        for block in blocks("")
        for line in block.text.replace("\\\n", " ").splitlines()
        if _COMMAND.match(line)
    ]
    return lines + [(str(code), code.text) for code in inline() if _COMMAND.match(code.text)]
