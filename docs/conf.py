"""How Sphinx makes the site: `make docs` reads the repository's Markdown and the docstrings of src, and writes site/.

Why Sphinx with Furo and MyST, as of November 2026:

- Docstrings here are reStructuredText with Google's sections, which autodoc and napoleon read. mkdocstrings reads Markdown
  and would show the roles (:func:`…`) as text.
- The search works from file://, and Furo takes no fonts, scripts or pictures from elsewhere. Formulas are MathML
  (`_reference.py`), since Sphinx' usual way is a script from the network.
- Sphinx and MyST are developed. MkDocs has had no release since August 2024; Material for MkDocs calls itself inactive on
  PyPI; its successor, Zensical 0.0.74, calls itself alpha, and its support of mkdocstrings preliminary.

The root of the sources is the repository's (`sphinx-build -c docs .`), so a relative link leads to the same file on a forge
and on the site. What is in `NAVIGATION` becomes a page; any other file that is linked (JSON, Python, a notebook) is copied.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import _public
import _reference

import bort

NAVIGATION = {
    "Start": ("README", "docs/put-bort-in-your-training", "docs/choose-lambda", "docs/notebooks"),
    "Guides": (
        "docs/fine-tuning",
        "docs/monitor",
        "docs/limits",
        "docs/training",
        "docs/repeat-the-paper",
        "docs/speed",
        "docs/scaling",
    ),
    "Look inside": (
        "docs/look-at-your-network",
        "docs/read-an-audit",
        "docs/read-a-report",
        "docs/explain-an-image",
        "docs/explore-a-network",
        "docs/architectures",
        "examples/plugin/README",
    ),
    "Reference": tuple(f"docs/api/{name}" for name in ("bort", *_public.PACKAGES)),
    "Results": (
        "results/RESULTS",
        "docs/reproduction",
        *(
            f"results/{table}"
            for table in ("table1", "table2", "table3", "modern", "pull", "lenet", "settings", "deep")
        ),
        *("results/ablation", "results/figures", "results/table2-three-epochs/README"),
    ),
    "Project": (
        "docs/architecture",
        "src/bort/optim/kernels/README",
        "src/bort/optim/sharded/README",
        "tests/oracles/README",
        "CHANGELOG",
        "SECURITY",
        "CONTRIBUTING",
        "docs/release",
    ),
}
"""The site's menu, group by group."""

ROOT = Path(__file__).parents[1]
LATER = ("results/modern",)  # a table without results has no page yet
PAGES = [page for group in NAVIGATION.values() for page in group if page not in LATER or (ROOT / f"{page}.md").exists()]

project = "bort"
version = release = bort.__version__
copyright = "the authors of bort, Apache-2.0"

root_doc = "README"  # index.html leads to it
include_patterns = [f"{page}.{suffix}" for page in PAGES for suffix in ("md", "rst")]
exclude_patterns = [".*", "site", "build", "dist", "runs"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4  # GitHub's: docs/reproduction.md#which-λ

default_role = "py:obj"  # `name` in a docstring is code, and a link if it is a name of ours
autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # torch tells of every `forward` how to write one
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"bort {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # each would be fetched, which a browser refuses from file://
html_math_renderer = "mathml"
html_additional_pages = {"index": "index.html"}
templates_path = ["_templates"]


def _add_navigation(app: Any, name: str, text: list[str]) -> None:
    """README.md cannot hold the menu itself: a forge would show it as a block of code."""
    if name != root_doc:
        return
    for title, pages in NAVIGATION.items():
        entries = "\n".join("self" if page == root_doc else f"/{page}" for page in pages if page in PAGES)
        text[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n"


def setup(app: Any) -> None:
    app.connect("source-read", _add_navigation)
    _reference.setup(app)
