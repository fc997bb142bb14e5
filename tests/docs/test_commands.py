"""Commands in the documentation: those of bort are parsed by bort's own parser, so their options exist, and have the values
that they seem to have; nothing is run."""

import functools
import importlib
import inspect
import json
import re
import shlex
import tomllib

import pytest

from bort.train import fit, recipes
from tests.docs.pages import ROOT, commands

FUNCTIONS = {
    **{name: name for name in ("audit", "demo", "evaluate", "explain", "report", "reproduce", "serve", "recipes")},
    **{"figures": "report", "results": "reproduce", "show": "recipes"},
}
"""The commands but `train`, and the modules of bort.cli that they are in."""

PLACEHOLDERS = {
    "RUN": "runs/demo/SGD",
    "RECIPE": "mnist5k-lenet-sgd",
    "NAME": "mnist5k-lenet-sgd",
    "TABLE": "table1",
    "…": "x",
}

COMMANDS = {line: place for place, line in commands() if not place.startswith("CHANGELOG")}  # which has old ones


class Parsed(Exception):
    """Raised in the place of a command's function: the parser was content, and this is what it understood."""

    def __init__(self, call):
        self.arguments = call.arguments


@pytest.fixture
def parse(monkeypatch, tmp_path):
    """`bort ARGUMENTS` up to the call of the command's function."""
    from bort.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.json").write_text(json.dumps(recipes.get("mnist5k-lenet-sgd").to_dict()))
    for command, module in FUNCTIONS.items():
        function = getattr(importlib.import_module(f"bort.cli.{module}"), command)
        monkeypatch.setattr(f"bort.cli.{module}.{command}", stopped(function))
    train = importlib.import_module("bort.cli.train").train
    monkeypatch.setattr("bort.cli.train.train", lambda arguments: train(arguments, fit=stopped(fit)))

    def parse(*arguments):
        monkeypatch.setattr("sys.argv", ["bort", *arguments])
        if arguments == ("--version",):  # which ends by itself
            main()
            return
        with pytest.raises((Parsed, SystemExit)) as stop:
            main()
        if stop.type is SystemExit:
            assert stop.value.code == 0, f"bort {shlex.join(arguments)} is not understood"
        else:
            assert_meant(stop.value.arguments, arguments)

    return parse


def assert_meant(read, typed):
    """Options that take several values have not swallowed what stands behind them."""
    if "look" in read:
        alone = [read[name] for name in ("run", "what", "against") if read.get(name)]
        read["look"].details([*read.get("runs", ()), *alone])  # refuses files without a network
    pictures = [word for word in typed if word.endswith((".png", ".jpg"))]
    assert [str(file) for file in read.get("images", ())] == pictures, (
        f"{shlex.join(typed)}: not all are read as images"
    )


def stopped(function):
    @functools.wraps(function)
    def stop(*arguments, **options):
        raise Parsed(inspect.signature(function).bind(*arguments, **options))

    return stop


def of_bort(line):
    """The arguments of `bort`, also under torchrun; None if it is another program."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line, comments=True)]
    if words[0] == "torchrun":
        words = words[words.index("-m") + 1 :]
    return words[1:] if words[0] == "bort" else None


def is_name(line):
    """The text only names a command, which may need arguments."""
    return re.fullmatch(r"bort \w+", line) is not None


@pytest.mark.parametrize("line", [line for line in COMMANDS if of_bort(line) is not None and not is_name(line)])
def test_bort(parse, line):
    parse(*of_bort(line))


def test_named_commands_exist():
    named = {line.split()[1] for line in COMMANDS if is_name(line)}
    assert named - {*FUNCTIONS, "train"} == set()


def test_all_commands_are_parsed():
    """A command that this file does not stop would be run by the tests."""
    source = inspect.getsource(importlib.import_module("bort.cli"))
    written = re.findall(r'^        "(\w+)":', source, flags=re.MULTILINE)
    assert set(written) == {*FUNCTIONS, "train"}


def test_the_parser_refuses(parse):
    """What the tests above rely on."""
    for wrong in (
        "report runs/x --imagse photographs",
        "nothing",
        "train mnist5k-lenet-sgd --optim.rate 1",
        "reproduce table9",
    ):
        with pytest.raises(AssertionError, match="not understood"):
            parse(*wrong.split())


def test_other_programs():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line, place in COMMANDS.items():
        program, *words = shlex.split(line, comments=True)
        if program == "make":
            assert words[0] in targets, f"{place}: {line}"
        elif program == "pip":
            for extra in re.findall(r"\[(\w+)\]", line):
                assert extra in extras, f"{place}: {line}"
        elif program in ("python", "pytest"):
            files = [word for word in words if re.search(r"\.py$", word)]
            assert files or words[0] == "-m", f"{place}: {line}"
            assert all((ROOT / file).is_file() for file in files), f"{place}: {line}"
