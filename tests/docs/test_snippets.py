"""Python in the documentation: every block compiles and uses public names that exist, with keywords that they take. Blocks
below ``<!-- run -->`` run, page by page, with `small_world` at hand."""

import ast
import importlib
import inspect
import types

import pytest
import torch
from torch import nn

import bort
from tests.docs.pages import blocks, inline

PACKAGES = {name: getattr(bort, name) for name in ("explain", "invert", "measure", "nets", "report", "subject")}
"""Short pieces of code use these without importing them."""

SNIPPETS = blocks("python")
SLOW = ("docs/monitor.md", "docs/explain-an-image.md")  # imports Lightning and transformers; evaluates all methods


class Names(ast.NodeVisitor):
    """What a block takes from bort, as values: each attribute of a module must be public there."""

    def __init__(self, tree):
        self.known = {"bort": bort, **PACKAGES}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.known.pop(node.id, None)
        self.visit(tree)

    def visit_Import(self, node):
        for alias in node.names:
            if alias.name.split(".")[0] == "bort":
                value = importlib.import_module(alias.name)
                self.known[alias.asname or "bort"] = value if alias.asname else bort

    def visit_ImportFrom(self, node):
        if node.module and node.module.split(".")[0] == "bort":
            module = importlib.import_module(node.module)
            self.known |= {alias.asname or alias.name: public(module, alias.name) for alias in node.names}

    def visit_Attribute(self, node):
        self.value(node)
        self.generic_visit(node)

    def visit_Call(self, node):
        function = self.value(node.func)
        if callable(function):
            parameters = inspect.signature(function).parameters
            if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                unknown = {keyword.arg for keyword in node.keywords if keyword.arg} - parameters.keys()
                assert not unknown, f"{ast.unparse(node.func)} takes no {', '.join(sorted(unknown))}"
        self.generic_visit(node)

    def value(self, node):
        """What an expression is, if it is a name of bort's or an attribute of one; None otherwise."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            if isinstance(owner, types.ModuleType):
                return public(owner, node.attr)
            return getattr(owner, node.attr) if inspect.isclass(owner) else None
        return None


def public(module, name):
    """A public name of a module: of its ``__all__``, or a package or module in it."""
    if name in getattr(module, "__all__", ()):
        return getattr(module, name)
    assert not name.startswith("_"), f"{module.__name__}.{name} is private"
    try:
        return importlib.import_module(f"{module.__name__}.{name}")
    except ModuleNotFoundError:
        raise AssertionError(f"{module.__name__} has no public {name}") from None


def cases(pages):
    return [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in dict.fromkeys(pages)]


@pytest.mark.parametrize("page", cases(snippet.page for snippet in SNIPPETS))
def test_names(page):
    for snippet in SNIPPETS:
        if snippet.page == page:
            Names(ast.parse("\n" * snippet.line + snippet.text, page))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("bort.BortX(model)", "no public BortX"),
        ("from bort.optim import _bort", "private"),
        ("explain.sat(model, x, kk=3)", "takes no kk"),
        ("import bort.train as t\nt.fit('x', folder='y')", "takes no folder"),
        ("bort.measure.Audit.nothing", "nothing"),
    ],
)
def test_the_check_notices(code, says):
    with pytest.raises((AssertionError, AttributeError), match=says):
        Names(ast.parse(code))


def test_names_in_the_text():
    """`measure.calibration` and the like in sentences. Old names stand in the changelog only."""
    lost = []
    for code in inline():
        first, _, rest = code.text.partition("(")[0].partition("=")[0].partition(".")
        named = first in {"bort", *PACKAGES} and all(map(str.isidentifier, rest.split(".")))
        if (
            not named or code.page == "CHANGELOG.md" or code.text == "bort.methods"
        ):  # which is the name of an entry point
            continue
        value = bort if first == "bort" else PACKAGES[first]
        for part in rest.split("."):
            if isinstance(value, types.ModuleType) and not hasattr(value, part):
                try:
                    importlib.import_module(f"{value.__name__}.{part}")
                except ModuleNotFoundError:
                    lost.append(f"{code}: {code.text}")
                    break
            value = getattr(value, part, None)
    assert lost == []


class Network(nn.Module):
    """With the layers that pages name, and 64 channels in them."""

    def __init__(self):
        super().__init__()
        self.conv5 = nn.Conv2d(3, 64, 3, padding=1)
        self.layer4 = nn.Conv2d(64, 64, 3, stride=2, padding=1)
        self.fc = nn.Linear(64, 4)

    def forward(self, x):
        maps = torch.relu(self.layer4(torch.relu(self.conv5(x))))
        return self.fc(maps.mean(dim=(2, 3)))


def small_world():
    """What blocks take for granted: a model, images and the packages."""
    model, x = Network(), torch.rand(2, 3, 8, 8)
    pixels, labels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    return {
        **{"torch": torch, "nn": nn, "bort": bort, **PACKAGES},
        **{"model": model, "x": x, "images": x, "y": labels, "labels": ["cat", "dog"], "STEPS": 100},
        **{"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25), "view": bort.data.View(8, 3, (0, 0, 0), (1, 1, 1))},
        **{"train_images": pixels, "train_labels": labels, "test_images": pixels, "test_labels": labels},
    }


@pytest.mark.parametrize("page", cases(snippet.page for snippet in SNIPPETS if snippet.runs))
def test_they_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = small_world()
    with bort.explain.local_registry(), bort.explain.memory_budget(forward=2**20):
        for snippet in SNIPPETS:
            if snippet.page == page and snippet.runs:
                exec(compile("\n" * snippet.line + snippet.text, page, "exec"), names)
    check = RESULTS.get(page)
    assert check is None or check(names)


RESULTS = {
    "docs/choose-lambda.md": lambda names: abs(names["constraint"] - 0.513) < 0.0005,
    "docs/explain-an-image.md": lambda names: names["trace"].maps.shape == (2, 64, 4, 4),
    "docs/fine-tuning.md": lambda names: {group["scale"] for group in names["optimizer"].param_groups} == {"initial"},
    "docs/look-at-your-network.md": lambda names: names["mine"]().view.class_names == ("cat", "dog"),
    "docs/training.md": lambda names: (
        names["net"](1, 10, 28, hidden=8)[1].out_features == 8 and names["digits"](None).names == ("zero", "one")
    ),
}
"""What the blocks of a page must have made."""
