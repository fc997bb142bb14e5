"""`bort recipes` and `bort show`, as typed."""

import json
import sys

import pytest

from bort.cli import main
from bort.train.recipes import Recipe, get, names


def bort(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["bort", *arguments])
    main()


def test_recipes_lists_all_with_the_papers_figures(monkeypatch, capsys):
    bort(monkeypatch, "recipes")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == names()
    assert next(line for line in lines if line.startswith("imagenet-resnet50-bort-l")).endswith("79.90 / 94.37")


def test_show_prints_one_that_can_be_read_back(monkeypatch, capsys):
    bort(monkeypatch, "show", "cifar10-acnn-small-bort-s")
    assert Recipe.from_dict(json.loads(capsys.readouterr().out)) == get("cifar10-acnn-small-bort-s")


def test_an_unknown_recipe_is_said_without_a_trace(monkeypatch):
    with pytest.raises(SystemExit, match="no recipe is called 'x'; there are mnist-lenet-sgd"):
        bort(monkeypatch, "show", "x")
