"""The list of tables."""

import subprocess
import sys

import pytest

from bort.reproduce import TABLES, get


def test_every_table_has_a_name_for_each_of_its_files():
    for name in TABLES:
        table = get(name)
        stems = [experiment.stem for experiment in table.seeded(quick=False, seeds=(0, 1))]
        assert len(stems) == len(set(stems)), name
        assert set(table.also_reads) <= set(TABLES)


def test_tables_that_share_a_folder_of_a_training_share_its_recipe():
    recipes = {}
    for name in TABLES:
        for experiment in get(name).experiments(False):
            for recipe in filter(None, (experiment.recipe, experiment.baseline)):
                assert recipes.setdefault(recipe.name, recipe) == recipe, name


def test_the_tables_are_the_papers():
    assert len(get("table1").seeded(quick=False)) == 8 * 3
    rows = get("table2").experiments(False)
    assert len(rows) == 14 - 3 + 7 + 4, (
        "the paper's without the three whose λ does nothing in so short a training, seven with the paper's pull, and four "
        "controls: VGG16-SGD, LAMB, DeiT-S, Swin-S"
    )
    assert len(get("table2").seeded(quick=False)) == 2 * 10 + 3 * 12, "three seeds of ResNet-50 and DeiT-S"
    rows = {experiment.recipe.name for experiment in get("table3").experiments(False)}
    assert {"mnist-acnn-small-sgd", "cifar10-acnn-small-bort-s"} <= rows
    optims = [experiment.recipe.optim for experiment in get("ablation").experiments(False)]
    assert len({(optim.weight_decay, optim.constraint) for optim in optims}) == 16


def test_the_networks_that_modern_is_named_for_are_in_it():
    assert get("modern").title == "Table 3 on DeiT-S and ResNet-50"
    rows = {experiment.recipe.name: experiment.recipe for experiment in get("modern").experiments(False)}
    assert {recipe.net.name for recipe in rows.values()} == {"timm/deit_small_patch16_224", "timm/resnet50"}
    assert rows["tiny-imagenet-resnet50-bort-s-pull-1.5"].optim.pull == 1.5
    assert all(name in TABLES["modern"] for name in ("DeiT-S", "ResNet-50"))


def test_a_table_that_is_not_there():
    with pytest.raises(ValueError, match="no table is called 'table4'; there are table1, lenet"):
        get("table4")
    with pytest.raises(ValueError, match="table2 has no quick form"):
        get("table2").experiments(True)


def test_the_names_are_listed_without_torch():
    """`bort --help` has them."""
    program = (
        "import sys; from bort.reproduce import TABLES; sys.exit('torch' in sys.modules or 'table1' not in TABLES)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(("old", "new"), [("PLANS", "TABLES"), ("Job", "Experiment")])
def test_names_of_version_0_1_0_name_the_new_ones(old, new):
    with pytest.raises(ImportError, match=f"use bort.reproduce.{new}"):
        exec(f"from bort.reproduce import {old}")
