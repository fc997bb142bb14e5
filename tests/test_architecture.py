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

SOURCE = Path(__file__).parents[1] / "src" / "bort"

ORDER = (
    *(
        "_colours",
        "_defaults",
        "_file_lock",
        "_files",
        "_html",
        "_intervals",
        "_import_path",
        "_precision",
        "_sample_sizes",
        "_standard_output",
        "_table",
        "_timm",
        "_environment",
        "_budget",
        "_failures",
        "_outputs",
        "_inspect",
        "_layouts",
    ),
    *(
        "penalty",
        "layers",
        "_used_weight",
        "_layer_inputs",
        "pictures",
        "optim",
        "monitor",
        "data",
        "augment",
        "nets",
        "train",
        "subject",
        "invert",
        "_show",
        "explain",
        "measure",
    ),
    *("report", "reproduce", "app", "cli"),
)
"""What `bort` is made of, from the ground up: packages and the modules beside them. docs/architecture.md draws it."""

ROOT = ("__init__", "__main__")  # the package itself, which only names its parts, and `python -m bort`


@cache
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
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bort":
            for alias in node.names:
                if f"{node.module}.{alias.name}" in modules():
                    aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "bort":
                    aliases[alias.asname or "bort"] = alias.name if alias.asname else "bort"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute):
            module = _module(node.value, aliases)
            if module is not None and f"{module}.{node.attr}" not in modules():
                yield module, node.attr, node.lineno


def _module(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """The module that an expression names: `train` or `train.recipes` after `from bort import train`."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute):
        parent = _module(node.value, aliases)
        return f"{parent}.{node.attr}" if parent is not None and f"{parent}.{node.attr}" in modules() else None
    return None


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


def test_private_modules_and_names_stay_inside_their_package() -> None:
    violations = []
    for module, path in modules().items():
        inside = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for target, name, line in (*targets(path), *attributes(path)):
            home = owner(target)
            if home is not None and inside != home and not inside.startswith(f"{home}."):
                violations.append(f"{path}:{line} reaches into {target}")
            there = target if modules()[target].name == "__init__.py" else target.rpartition(".")[0]
            if is_private(name) and target != module and inside != there:
                violations.append(f"{path}:{line} uses {target}.{name}")
    assert violations == []


def test_across_packages_only_public_names_are_used() -> None:
    violations = []
    for module, path in modules().items():
        for target, name, line in (*targets(path), *attributes(path)):
            if not name or package(target) in (package(module), "__init__") or is_private(package(target)):
                continue
            if name not in public(target):
                violations.append(f"{path}:{line}: {name} is not in {target}.__all__")
    assert violations == []


def test_imports_go_one_way() -> None:
    violations = []
    for module, path in modules().items():
        here = package(module)
        for target, name, line in targets(path) if here not in ROOT else ():
            there = package(target)
            if there == "__init__":
                if name not in ("", "__version__"):
                    violations.append(f"{path}:{line}: {name} from bort itself, instead of from where it is defined")
            elif there != here and ORDER.index(there) > ORDER.index(here):
                violations.append(f"{path}:{line}: {here} comes before {there} and imports it")
    assert violations == []


def test_the_rules_notice_a_violation(tmp_path: Path) -> None:
    """What the tests above are made of, on a file that breaks each rule."""
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from bort import explain\n"
        "def f():\n"
        "    from bort.optim._spec import PenaltySpec\n"
        "    import bort.cli\n"
        "    import bort.train as t\n"
        "    return explain._private, t.recipes._RECIPES\n"
    )
    assert [target for target, _, _ in targets(bad)] == [
        "bort.explain",
        "bort.optim._spec",
        "bort.cli",
        "bort.train",
    ]
    assert owner("bort.optim._spec") == "bort.optim"
    assert owner("bort.optim.kernels._run") == "bort.optim.kernels"
    assert owner("bort.layers") is None
    assert sorted((target, name) for target, name, _ in attributes(bad)) == [
        ("bort.explain", "_private"),
        ("bort.train.recipes", "_RECIPES"),
    ]


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
