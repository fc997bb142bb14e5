"""The house rules, read off the syntax trees of all modules, imports inside functions included.

1. A private module or name is used only inside the package that it belongs to.
2. Across packages only names in ``__all__`` are imported.
3. Imports go one way: from the right of ``ORDER`` to its left.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "bort"

ORDER = (
    *(
        "_defaults",
        "_files",
        "_import_path",
        "_precision",
        "_sample_sizes",
        "_table",
        "_timm",
        "_environment",
        "_inspect",
    ),
    *("penalty", "layers", "pictures", "optim", "data", "nets", "train", "subject", "invert", "explain", "measure"),
    *("report", "reproduce", "app", "cli"),
)
"""What `bort` is made of, from the ground up: packages and the modules beside them. docs/architecture.md draws it."""

ROOT = ("__init__", "__main__")  # the package itself, which only names its parts, and `python -m bort`


def modules() -> dict[str, Path]:
    paths = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(path: Path) -> Iterator[tuple[str, str, int]]:
    """(module, name or "", line) of every import of bort's own, at the top of a file or inside a function."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", node.lineno) for alias in node.names if alias.name.split(".")[0] == "bort")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            if node.module and node.module.split(".")[0] == "bort":
                yield from ((node.module, alias.name, node.lineno) for alias in node.names)


def targets(path: Path) -> Iterator[tuple[str, str, int]]:
    """(module, name in it or "", line): `from bort import optim` and `from bort.optim import _apply` import modules."""
    known = modules()
    for module, name, line in imports(path):
        if name and f"{module}.{name}" in known:
            yield f"{module}.{name}", "", line
        else:
            yield module, name, line


def attributes(path: Path) -> Iterator[tuple[str, str, int]]:
    """The same for what is used of an imported module: `explain.sat` after `from bort import explain`."""
    aliases: dict[str, str] = {}
    known = modules()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bort":
            for alias in node.names:
                if f"{node.module}.{alias.name}" in known:
                    aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield aliases[node.value.id], node.attr, node.lineno


@cache
def public(module: str) -> frozenset[str]:
    """What a module offers to other packages."""
    for node in tree(modules()[module]).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


def package(module: str) -> str:
    """The room that a module is in: bort.optim.kernels._launch is in "optim", bort.layers in "layers"."""
    return module.split(".")[1] if "." in module else "__init__"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def owner(module: str) -> str | None:
    """The package that the first private part of a module's path belongs to; None if no part is private."""
    parts = module.split(".")
    for place, part in enumerate(parts):
        if is_private(part):
            return ".".join(parts[:place])
    return None


@pytest.mark.parametrize("module", modules())
def test_private_modules_and_names_stay_inside_their_package(module: str) -> None:
    path = modules()[module]
    inside = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for target, name, line in (*targets(path), *attributes(path)):
        home = owner(target)
        assert home is None or inside == home or inside.startswith(f"{home}."), f"{path}:{line} reaches into {target}"
        if is_private(name):
            there = target if modules()[target].name == "__init__.py" else target.rpartition(".")[0]
            assert target == module or inside == there, f"{path}:{line} uses {target}.{name}"


@pytest.mark.parametrize("module", modules())
def test_across_packages_only_public_names_are_used(module: str) -> None:
    path = modules()[module]
    for target, name, line in (*targets(path), *attributes(path)):
        if not name or package(target) in (package(module), "__init__") or is_private(package(target)):
            continue
        assert name in public(target), f"{path}:{line}: {name} is not in {target}.__all__"


@pytest.mark.parametrize("module", modules())
def test_imports_go_one_way(module: str) -> None:
    path = modules()[module]
    here = package(module)
    if here in ROOT:
        return
    for target, name, line in targets(path):
        there = package(target)
        if there == "__init__":
            assert name in ("", "__version__"), f"{path}:{line}: import {name} from its own package"
        elif there != here:
            assert ORDER.index(there) < ORDER.index(here), f"{path}:{line}: {here} is below {there}, and imports it"


def test_every_module_has_its_place() -> None:
    assert {package(module) for module in modules()} - set(ROOT) == set(ORDER)


def test_what_is_public_is_there() -> None:
    """Names in `__all__` that a typo or a move has left behind would only be met by `from bort.x import *`."""
    import importlib

    for module in modules():
        if not is_private(module.rpartition(".")[2]) and owner(module) is None:
            names = public(module)
            if names:
                loaded = importlib.import_module(module)
                assert [name for name in sorted(names) if not hasattr(loaded, name)] == []
