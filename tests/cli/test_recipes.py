"""`bort recipes` and `bort show`"""

import json

import pytest

from bort.train import Recipe, recipes


def test_recipes_lists_all_with_the_papers_figures(bort, capsys):
    bort("recipes")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == recipes.names()
    assert next(line for line in lines if line.startswith("imagenet-resnet50-bort-l")).endswith("79.90 / 94.37")


def test_show_prints_one_that_can_be_read_back(bort, capsys):
    bort("show", "cifar10-acnn-small-bort-s")
    assert Recipe.from_dict(json.loads(capsys.readouterr().out)) == recipes.get("cifar10-acnn-small-bort-s")


def test_an_unknown_recipe_is_said_without_a_traceback(bort):
    with pytest.raises(SystemExit, match="bort show: no recipe is called 'x'; there are mnist-lenet-sgd"):
        bort("show", "x")
