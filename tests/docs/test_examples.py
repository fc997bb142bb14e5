"""Docstrings: every public name has one, and every public class and function an example that runs."""

import doctest
import inspect

import pytest
import torch
from torch import nn

import bort
from tests.docs.public import public

NAMES = {str(name): name for name in public.names() if not inspect.ismodule(name.value)}
CALLABLE = [text for text, name in NAMES.items() if not name.is_data]

ENDLESS = ("bort.app.serve",)
"""Their examples would run until Ctrl-C; tests/cli/test_serve.py does that."""

SLOW = ("bort.train.Run", "bort.train.fit", "bort.train.load")  # they train

IMPORTED = {"torch": torch, "nn": nn, "bort": bort, **{name: getattr(bort, name) for name in public.PACKAGES}}
"""What examples may use without importing it; docs/api/bort.rst says so."""


def failures(text):
    """What goes wrong in the example of a name; None if it has none that runs."""
    test = doctest.DocTestParser().get_doctest(NAMES[text].doc, dict(IMPORTED), text, None, None)
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    runner.run(test, out=report.append)
    runs = [example for example in test.examples if doctest.SKIP not in example.options]
    return "".join(report) if runs else None


@pytest.mark.parametrize("text", NAMES)
def test_docstrings(text):
    doc = NAMES[text].doc
    assert doc
    assert not doc.startswith(f"{NAMES[text].name}("), "nothing but what a NamedTuple or a dataclass says of itself"


@pytest.mark.parametrize("text", [pytest.param(text, marks=[pytest.mark.slow] * (text in SLOW)) for text in CALLABLE])
def test_examples(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert failures(text) == (None if text in ENDLESS else "")
