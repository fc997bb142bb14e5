"""What autodoc has to be told about this code, formulas without a script, and references that must lead somewhere."""

from __future__ import annotations

import re
from typing import Any

from _public import Name
from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util import logging

_GOOGLE = Config(napoleon_use_rtype=False)
_log = logging.getLogger(__name__)


def read_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Google's sections as reStructuredText. Attributes have none: napoleon would read "(N, k): the signals" as a type and
    its description."""
    if what in ("attribute", "property"):
        lines[:] = [
            line for line in lines if not line.startswith("Alias for field number")
        ]  # Python's own, of a NamedTuple
        return
    if what == "data":
        module, _, constant = name.rpartition(".")
        what, lines[:] = "module", [*Name(module, constant).doc.splitlines(), ""]
    lines[:] = GoogleDocstring(lines, _GOOGLE, None, what, name, obj, options).lines()


def read_signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """Defaults that Python cannot read again, such as <function fit>: with one, Sphinx takes a signature for plain text."""
    if signature:
        unreadable = r"<(?:factory|(?:built-in )?function (\w+)[^>]*)>"
        signature = re.sub(unreadable, lambda default: default[1] or "...", signature)
    return signature, result


def refuse_lost_names(app: Any, env: Any, node: Any, content: Any) -> None:
    """A name of ours in a docstring that the site does not have. Names of torch and types of signatures may have no page."""
    target, written = node.get("reftarget", ""), "refexplicit" in node
    if written and node.get("refdomain") == "py" and (target == "bort" or target.startswith("bort.")):
        _log.warning("nothing public is called %s", target, location=node, type="bort")


def inline_formula(writer: Any, node: nodes.math) -> None:
    writer.body.append(latex2mathml.tex2mathml(node.astext()))
    raise nodes.SkipNode


def displayed_formula(writer: Any, node: nodes.math_block) -> None:
    tex = node.astext()
    if "&" in tex or r"\\" in tex:
        tex = rf"\begin{{aligned}}{tex}\end{{aligned}}"
    writer.body.append(f'<div class="formula">{latex2mathml.tex2mathml(tex, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", read_signature)
    app.connect("missing-reference", refuse_lost_names)
