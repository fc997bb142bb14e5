"""A built site as a browser meets it: links, anchors, and what its pages load."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
}
"""What is loaded when a page is looked at, by tag and attribute."""
_STYLE = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if values.get(LOADED.get(tag, "")):
            self.loaded.add(values[LOADED[tag]])


class Site:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.pages = {path: Page(path) for path in sorted(root.rglob("*.html"))}

    def broken(self) -> list[str]:
        """Links to files, pages and anchors that are not there. Those to other sites are not tried."""
        return [
            f"{path.relative_to(self.root)}: {link}"
            for path, page in self.pages.items()
            for link in sorted(page.links | page.loaded)
            if not urlsplit(link).scheme and not self._leads_somewhere(path, link)
        ]

    def _leads_somewhere(self, path: Path, link: str) -> bool:
        parts = urlsplit(link)
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_relative_to(self.root) or not target.is_file():
            return False
        anchor = unquote(parts.fragment)
        return not anchor or target not in self.pages or anchor in self.pages[target].anchors

    def foreign(self) -> list[str]:
        """What pages and styles load from elsewhere."""
        addresses = [(path, address) for path, page in self.pages.items() for address in page.loaded]
        for path in self.root.rglob("*.css"):
            addresses += [(path, url or imported) for url, imported in _STYLE.findall(path.read_text(encoding="utf-8"))]
        return [
            f"{path.relative_to(self.root)}: {address}"
            for path, address in addresses
            if urlsplit(address).scheme not in ("", "data") or address.startswith("//")
        ]
